/** The official client logs in at a real authorization server and calls a server of ours that accepts its tokens. */

import {
  type OAuthClientProvider,
  type OAuthDiscoveryState,
  type StoredOAuthClientInformation,
  type StoredOAuthTokens,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from '@modelcontextprotocol/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type AuthorizationServer,
  REDIRECT_URI,
  startAuthorizationServer,
} from '../support/authorization-server.ts'
import { type ProtectedServer, startProtected } from '../support/login-server.ts'
import { connectOfficial, MODERN, type OfficialClient, OLDER } from '../support/official-client.ts'

let as: AuthorizationServer
let server: ProtectedServer
beforeAll(async () => {
  // The official client registers itself with the scopes of the challenge, which must be known to the provider.
  const scopes = ['openid', 'offline_access', 'tickets:read', 'tickets:write']
  as = await startAuthorizationServer({ configuration: { scopes } })
  server = await startProtected(as)
})
afterAll(async () => {
  await server.close()
  await as.close()
})

interface Person extends OAuthClientProvider {
  /** The redirects that came back, the last one last. */
  readonly redirects: URL[]
  readonly links: URL[]
}

/** A host whose user follows every link at once. It registers itself, unless it is given a client. */
function createPerson(client?: StoredOAuthClientInformation): Person {
  let known = client
  let tokens: StoredOAuthTokens | undefined
  let verifier = ''
  let discovered: OAuthDiscoveryState | undefined
  const redirects: URL[] = []
  const links: URL[] = []
  return {
    redirects,
    links,
    redirectUrl: REDIRECT_URI,
    clientMetadata: {
      client_name: 'official',
      redirect_uris: [REDIRECT_URI],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      application_type: 'native',
    },
    clientInformation: () => known,
    saveClientInformation(given) {
      known = given
    },
    tokens: () => tokens,
    saveTokens(given) {
      tokens = given
    },
    async redirectToAuthorization(url) {
      links.push(url)
      redirects.push(await as.visit(url))
    },
    saveCodeVerifier(given) {
      verifier = given
    },
    codeVerifier: () => verifier,
    saveDiscoveryState(given) {
      discovered = given
    },
    discoveryState: () => discovered,
  }
}

const open = (authProvider: Person) =>
  new StreamableHTTPClientTransport(new URL(server.url), { authProvider })

/** Logs in as hosts do: the first connection fails, and the code of the redirect is exchanged for a token. */
async function logIn(person: Person, options = MODERN): Promise<OfficialClient> {
  const first = open(person)
  await expect(connectOfficial(first, options)).rejects.toThrow(UnauthorizedError)
  await first.finishAuth(person.redirects.at(-1)?.searchParams ?? new URLSearchParams())
  return connectOfficial(open(person), options)
}

describe.each([
  ['2026-07-28', MODERN],
  ['an earlier era', OLDER],
])('the official client at %s', (_era, options) => {
  it('H1 H4 completes the code flow against our server and calls a tool that asks', async () => {
    const person = createPerson()
    const official = await logIn(person, options)
    const said = await official.run({ method: 'tools/call', target: 'greet' }, { name: { name: 'Ada' } })
    expect(said.text).toMatch(/^Hello Ada, alice of \S+$/)
    expect(official.asked).toEqual(['Your name?'])
    expect(Object.fromEntries(person.links[0]?.searchParams ?? [])).toMatchObject({
      resource: server.url,
      scope: expect.stringContaining('tickets:read'),
    })
    await official.close()
  })

  it('H2 steps up with the scopes of our challenge, all at once', async () => {
    const person = createPerson({ client_id: 'desk', issuer: as.issuer })
    const official = await logIn(person, options)
    const refused = official.run({ method: 'tools/call', target: 'refund' })
    await expect(refused).rejects.toThrow(UnauthorizedError)
    expect(person.links).toHaveLength(2)
    expect(person.links[1]?.searchParams.get('scope')?.split(' ')).toEqual(
      expect.arrayContaining(['tickets:read', 'tickets:write']),
    )
    const again = open(person)
    await again.finishAuth(person.redirects.at(-1)?.searchParams ?? new URLSearchParams())
    await official.close()
    const stepped = await connectOfficial(again, options)
    expect(await stepped.run({ method: 'tools/call', target: 'refund' })).toEqual({
      text: 'refunded',
      isError: false,
    })
    await stepped.close()
  })
})
