/** Our client logs in at a real authorization server and calls a server of ours that lets in only its tokens. */

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { callProtected } from '../../examples/client-login.ts'
import { answer, type Client, connect, type ElicitResult } from '../../packages/rondo/src/client.ts'
import {
  memoryTokenStore,
  type OAuthOptions,
  oauth,
  type StoredLogin,
} from '../../packages/rondo/src/client-oauth.ts'
import {
  type AuthorizationServer,
  REDIRECT_URI,
  ROBOT_SECRET,
  startAuthorizationServer,
} from '../support/authorization-server.ts'
import { type ProtectedServer, startProtected } from '../support/login-server.ts'

let as: AuthorizationServer
let server: ProtectedServer
let clock = 0
/** The links that were shown to a person. */
let links: URL[] = []
const clients: Client[] = []

beforeAll(async () => {
  as = await startAuthorizationServer()
  server = await startProtected(as)
})
beforeEach(() => {
  clock = Date.now()
  links = []
})
afterAll(async () => {
  for (const client of clients) await client.close()
  await server.close()
  await as.close()
})

const login: OAuthOptions['login'] = () => ({
  redirectUri: REDIRECT_URI,
  visit({ url }) {
    links.push(url)
    return as.visit(url)
  },
})
const desk = { id: 'desk' }
const ada = (): ElicitResult => ({ action: 'accept', content: { name: 'Ada' } })

async function open(options: OAuthOptions): Promise<Client> {
  const auth = oauth({ now: () => clock, ...options })
  const client = await connect(server.url, { auth, answers: { elicitation: ada } })
  clients.push(client)
  return client
}

async function say(client: Client, tool: string): Promise<unknown> {
  const { content } = await client.callTool(tool)
  return content[0]?.type === 'text' ? content[0].text : content
}

const countTokenRequests = (): number => as.requests.filter((one) => one === 'POST /token').length
const AN_HOUR = 3_600_000

describe('a login', () => {
  it('H4 finds the authorization server, registers, and calls a tool that asks', async () => {
    const client = await open({ login })
    expect(await say(client, 'greet')).toMatch(/^Hello Ada, alice of /)
    expect(links).toHaveLength(1)
    const query = Object.fromEntries(links[0]?.searchParams ?? [])
    expect(query).toMatchObject({
      resource: server.url,
      code_challenge_method: 'S256',
      response_type: 'code',
    })
    expect(query.scope?.split(' ')).toContain('tickets:read')
    expect(as.requests).toContain('POST /reg')
  })

  it('H4 uses a client id metadata document instead of registering', async () => {
    const id = 'https://host.example/client.json'
    as.documents.set(id, {
      client_id: id,
      client_name: 'Host',
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      redirect_uris: [REDIRECT_URI],
    })
    const registered = as.requests.filter((one) => one === 'POST /reg').length
    const client = await open({ login, clientMetadataUrl: id })
    expect(await say(client, 'greet')).toBe(`Hello Ada, alice of ${id}`)
    expect(as.requests.filter((one) => one === 'POST /reg')).toHaveLength(registered)
  })

  it('H4 names the resource in every request for a token, also for a refresh and for the client itself', async () => {
    const sent: URLSearchParams[] = []
    const spied: OAuthOptions['fetch'] = (url, init) => {
      if (url.endsWith('/token')) sent.push(new URLSearchParams(String(init.body)))
      return fetch(url, init)
    }
    const person = await open({ login, client: desk, fetch: spied })
    clock += AN_HOUR
    await say(person, 'whoami')
    const client = { id: 'robot', secret: ROBOT_SECRET, issuer: as.issuer }
    await open({ grant: 'client_credentials', client, fetch: spied })
    expect(sent.map((body) => [body.get('grant_type'), body.get('resource')])).toEqual([
      ['authorization_code', server.url],
      ['refresh_token', server.url],
      ['client_credentials', server.url],
    ])
    expect(sent[0]?.get('code_verifier')).toMatch(/^[\w-]{43,}$/)
  })

  it('is shared by requests that are refused at the same time', async () => {
    const auth = oauth({ login, client: desk })
    const opened = await Promise.all([1, 2, 3].map(() => connect(server.url, { auth })))
    clients.push(...opened)
    expect(links).toHaveLength(1)
    expect(await Promise.all(opened.map((one) => say(one, 'whoami')))).toEqual(['alice', 'alice', 'alice'])
  })

  it('lets a client act for itself with its secret', async () => {
    const client = { id: 'robot', secret: ROBOT_SECRET, issuer: as.issuer }
    const robot = await open({ grant: 'client_credentials', client })
    expect(await say(robot, 'refund')).toBe('refunded')
    expect(links).toEqual([])
  })

  it('is asked of the caller by an error where nobody can log in', async () => {
    await expect(open({})).rejects.toMatchObject({
      code: 'PEER_LOGIN',
      message: expect.stringMatching(/requires a login with the scope tickets:read$/),
    })
  })

  it('is refused where a token would be sent without encryption', () => {
    expect(() => oauth().open(new URL('http://mcp.example/mcp'))).toThrow(/over https only/)
    expect(() => oauth({ client: { id: 'a', secret: 'b' } })).toThrow(/client.issuer/)
  })
})

describe('T31 a refresh', () => {
  it('H4 happens between two rounds of a call, and the pending call holds no token', async () => {
    const store = memoryTokenStore()
    const client = await open({ login, client: desk, store })
    const first = await client.start({ method: 'tools/call', name: 'greet', arguments: {} })
    if (first.status !== 'input_required') throw new Error(first.status)
    const before = (await store.load(server.url)) as StoredLogin
    const kept = JSON.stringify(first.pending)
    expect(kept).toContain(first.pending.state)
    expect(kept).not.toContain(before.tokens?.accessToken)
    clock += AN_HOUR
    const requests = countTokenRequests()
    const done = await client.resume(answer(JSON.parse(kept), 'name', ada()))
    expect(done).toMatchObject({
      status: 'complete',
      result: { content: [{ text: 'Hello Ada, alice of desk' }] },
    })
    expect(countTokenRequests() - requests).toBe(1)
    const after = (await store.load(server.url)) as StoredLogin
    expect(after.tokens?.accessToken).not.toBe(before.tokens?.accessToken)
    expect(after.tokens?.refreshToken).not.toBe(before.tokens?.refreshToken)
    expect(links).toHaveLength(1)
  })

  it('H4 is sent once, however many requests wait for it', async () => {
    const store = memoryTokenStore()
    // Two hosts that share a store, as two processes would.
    const two = [await open({ login, client: desk, store }), await open({ login, client: desk, store })]
    clock += AN_HOUR
    const requests = countTokenRequests()
    const said = await Promise.all([...two, ...two, ...two].map((one) => say(one, 'whoami')))
    expect(new Set(said)).toEqual(new Set(['alice']))
    expect(countTokenRequests() - requests).toBe(1)
  })

  it('whose response is lost is sent again; if that ends the login, somebody logs in once', async () => {
    let lost = 0
    const lossy: OAuthOptions['fetch'] = async (url, init) => {
      const response = await fetch(url, init)
      if (!String(init.body).includes('grant_type=refresh_token') || lost > 0) return response
      lost += 1
      throw new TypeError('fetch failed')
    }
    const client = await open({ login, client: desk, fetch: lossy })
    clock += AN_HOUR
    expect(await say(client, 'whoami')).toBe('alice')
    expect(lost).toBe(1)
    expect(links).toHaveLength(2)
  })

  it('keeps its new refresh token in use if the store fails to save it', async () => {
    const kept = memoryTokenStore()
    let broken = false
    const store = {
      ...kept,
      save(key: string, one: StoredLogin) {
        if (broken) throw new Error('disk full')
        return kept.save(key, one)
      },
    }
    const client = await open({ login, client: desk, store })
    clock += AN_HOUR
    broken = true
    await expect(say(client, 'whoami')).rejects.toThrow('disk full')
    broken = false
    clock += AN_HOUR
    expect(await say(client, 'whoami')).toBe('alice')
    expect(links).toHaveLength(1)
  })

  it('rejects with a sentence if the login was revoked, and keeps the client', async () => {
    const store = memoryTokenStore()
    await open({ login, client: desk, store })
    const { tokens } = (await store.load(server.url)) as StoredLogin
    await fetch(`${as.issuer}/token/revocation`, {
      method: 'POST',
      body: new URLSearchParams({ client_id: 'desk', token: tokens?.refreshToken ?? '' }),
    })
    clock += AN_HOUR
    await expect(open({ client: desk, store })).rejects.toMatchObject({
      code: 'PEER_LOGIN',
      message: expect.stringMatching(/^\[PEER_LOGIN\] The login has ended: .* requires a login/),
    })
    const left = (await store.load(server.url)) as StoredLogin
    expect(left).toMatchObject({ client: { id: 'desk' } })
    expect(left.tokens).toBeUndefined()
  })
})

describe('T31 a refresh that another process has begun', () => {
  /** A host whose refreshes wait until they are released. */
  const hold = () => {
    let release = (): void => {}
    let began = (): void => {}
    const gate = new Promise<void>((resolve) => {
      release = resolve
    })
    const begun = new Promise<void>((resolve) => {
      began = resolve
    })
    const held: OAuthOptions['fetch'] = async (url, init) => {
      const response = await fetch(url, init)
      if (String(init.body).includes('grant_type=refresh_token')) {
        began()
        await gate
      }
      return response
    }
    return { held, begun, release }
  }

  it('does not bring a login back that somebody ends meanwhile', async () => {
    const store = memoryTokenStore()
    const { held, begun, release } = hold()
    const slow = await open({ login, client: desk, store, fetch: held })
    clock += AN_HOUR
    const refreshing = say(slow, 'whoami')
    await begun
    const ended = oauth({ client: desk, store }).logout(server.url)
    release()
    await refreshing
    expect(await ended).toBe(true)
    expect(await store.load(server.url)).toBeUndefined()
  })

  it('does not replace a login with more scope that somebody completes meanwhile', async () => {
    const store = memoryTokenStore()
    const { held, begun, release } = hold()
    const slow = await open({ login, client: desk, store, fetch: held })
    clock += AN_HOUR
    const refreshing = say(slow, 'whoami')
    await begun
    // Without the turn that it has to wait for, the login would be saved now, and then replaced.
    const saved = new Promise<void>((resolve) => {
      const { save } = store
      store.save = (key, one) => {
        resolve()
        return save(key, one)
      }
    })
    const before = countTokenRequests()
    const stepping = oauth({ login, client: desk, store, scopes: ['tickets:write'] }).login(server.url)
    await expect.poll(() => countTokenRequests() - before, { timeout: 60_000 }).toBe(1)
    await Promise.race([saved, new Promise((resolve) => setTimeout(resolve, 150))])
    release()
    await refreshing
    const { tokens } = await stepping
    expect(await store.load(server.url)).toMatchObject({
      scopes: expect.arrayContaining(['tickets:write']),
      tokens: { accessToken: tokens?.accessToken },
    })
  })
})

describe('a step-up', () => {
  it('H4 requests the scopes of before and those of the challenge, and sends the call again', async () => {
    const client = await open({ login, client: desk })
    expect(await say(client, 'refund')).toBe('refunded')
    expect(links).toHaveLength(2)
    const scopes = links[1]?.searchParams.get('scope')?.split(' ')
    expect(scopes).toEqual(expect.arrayContaining(['tickets:read', 'tickets:write']))
  })

  it('H4 is not tried again with scopes that were requested and not granted', async () => {
    const grudging: OAuthOptions['login'] = () => ({
      redirectUri: REDIRECT_URI,
      visit({ url }) {
        links.push(url)
        const granted = new URL(url)
        granted.searchParams.set('scope', 'tickets:read')
        return as.visit(granted)
      },
    })
    const client = await open({ login: grudging, client: desk })
    await expect(say(client, 'refund')).rejects.toMatchObject({
      code: 'PEER_LOGIN',
      message: expect.stringMatching(/tickets:write, which was requested already and not granted/),
    })
    expect(links).toHaveLength(2)
  })
})

it('a logout revokes the tokens and forgets them', async () => {
  const store = memoryTokenStore()
  const auth = oauth({ login, client: desk, store })
  const { tokens } = await auth.login(server.url)
  expect(await auth.logout(server.url)).toBe(true)
  expect(await store.load(server.url)).toBeUndefined()
  const again = as.refresh({ refreshToken: tokens?.refreshToken ?? '', resource: server.url })
  await expect(again).rejects.toThrow(/invalid_grant/)
})

it('the example of the guide logs in through a port of this machine', async () => {
  const onLink = (link: string) => void as.visit(link).then((redirect) => fetch(redirect))
  expect(await callProtected(server.url, 'whoami', onLink)).toMatchObject({ content: [{ text: 'alice' }] })
})
