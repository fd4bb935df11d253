/** The pages in a real browser, with a real identity provider, beside a real MCP endpoint. */

import { createServer as createTcpServer } from 'node:net'
import { createApprovals, oidc } from '@rondo/approvals'
import { createServer } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { type AuthorizationServer, startAuthorizationServer } from '../support/authorization-server.ts'
import { HAS_BROWSER, openBrowser, runAxe } from '../support/browser.ts'

const TENANT = 'deployer'
let provider: AuthorizationServer
let origin: string
let approvals: ReturnType<typeof createApprovals>
const closing: (() => unknown)[] = []

/** The port must be known before the server listens, because the provider and the pages name it. */
async function findPort(): Promise<number> {
  const probe = createTcpServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => probe.once('listening', resolve))
  const { port } = probe.address() as { port: number }
  await new Promise((resolve) => probe.close(resolve))
  return port
}

beforeAll(async () => {
  const port = await findPort()
  origin = `http://127.0.0.1:${port}`
  const client = {
    client_id: 'approvals',
    client_secret: 'a-secret-of-the-approvals',
    redirect_uris: [`${origin}/approvals/callback`],
    grant_types: ['authorization_code'],
    response_types: ['code'],
    token_endpoint_auth_method: 'client_secret_post',
  } as const
  provider = await startAuthorizationServer({ clients: [client as never] })
  const { issuer } = provider
  const server = createServer({ name: TENANT, version: '1.0.0', store: createMemoryStore(), log: () => {} })
  approvals = createApprovals({
    url: `${origin}/approvals`,
    login: oidc({
      issuer,
      clientId: client.client_id,
      clientSecret: client.client_secret,
      scope: 'openid',
      allowInsecure: true,
    }),
    groups: () => ['ann', 'erin'],
    pollMs: 3_600_000,
  })
  server.use({
    ...approvals,
    attach: (host) => approvals.attach?.({ ...host, hook: async () => ({ kind: 'open' }) }),
  })
  await server.listen({ port })
  closing.push(
    () => server.close(),
    () => provider.close(),
  )
})
afterAll(async () => {
  for (const close of closing) await close()
})

/** Opens a request, as a turn of a task does. */
async function ask(id: string): Promise<void> {
  await approvals.approver?.open({
    id,
    attempt: 1,
    hook: `hook of ${id}`,
    flow: `flow of ${id}`,
    key: 'deploy',
    tool: 'deploy',
    args: { version: id },
    caller: { issuer: provider.issuer, subject: 'erin' },
    from: ['managers'],
    message: `Deploy ${id}?`,
    details: { version: id, commit: 'abc' },
    until: Date.now() + 86_400_000,
    quorum: 1,
    denials: 1,
    allowSelf: false,
    passNote: false,
  })
}

const stateOf = async (id: string) => (await approvals.desk().get(id))?.state

describe.skipIf(!HAS_BROWSER)('the pages of an approver', () => {
  it.each([
    { colorScheme: 'light', width: 1280, javaScriptEnabled: true },
    { colorScheme: 'dark', width: 360, javaScriptEnabled: true },
    { colorScheme: 'light', width: 400, javaScriptEnabled: false },
  ] as const)(
    'L1 can be used with a keyboard alone, and have no barriers: $colorScheme, $width px, scripts $javaScriptEnabled',
    async (options) => {
      const id = `v-${options.width}`
      await ask(id)
      provider.user = 'ann'
      const browser = await openBrowser(options)
      const { page } = browser
      const tabTo = async (name: string) => {
        for (let i = 0; i < 20; i++) {
          await page.keyboard.press('Tab')
          if ((await page.evaluate('document.activeElement.textContent')) === name) return
        }
        throw new Error(`The keyboard does not reach ${name}`)
      }
      // axe is a script: it examines a copy of what a browser without scripts shows.
      const checker = options.javaScriptEnabled ? undefined : await openBrowser()
      const assertNoBarriers = async () => {
        await checker?.page.setContent(await page.content())
        const { violations, passes } = await runAxe(checker?.page ?? page)
        expect(violations).toEqual([])
        expect(passes).toBeGreaterThan(5)
        expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
      }
      try {
        await page.goto('data:text/html,<title>unchanged</title><script>document.title = "ran"</script>')
        expect(await page.title()).toBe(options.javaScriptEnabled ? 'ran' : 'unchanged')
        browser.requests.length = 0
        await page.goto(`${origin}/approvals`)
        await assertNoBarriers()
        await tabTo(`Deploy ${id}?`)
        await page.keyboard.press('Enter')
        await page.getByRole('heading', { name: `Deploy ${id}?` }).waitFor()
        await assertNoBarriers()
        await tabTo('Approve')
        await page.keyboard.press('Enter')
        await page.getByRole('status').getByText('You have approved this.').waitFor()
        await assertNoBarriers()
        expect(browser.problems).toEqual([])
        const elsewhere = browser.requests.filter(
          (one) => !one.startsWith(origin) && !one.startsWith(provider.issuer),
        )
        expect(elsewhere).toEqual([])
      } finally {
        await browser.close()
        await checker?.close()
      }
      expect(await stateOf(id)).toBe('approved')
    },
  )
})

describe('the login', () => {
  const open = (path: string, cookie = '', init: RequestInit = {}) =>
    fetch(`${origin}/approvals${path}`, { redirect: 'manual', ...init, headers: { cookie } })
  const cookiesOf = (response: Response) =>
    response.headers
      .getSetCookie()
      .map((one) => one.split(';')[0] ?? '')
      .join('; ')
  /** Logs in as a browser without scripts does: by links and redirects alone. */
  const logIn = async (user: string, path = ''): Promise<{ cookie: string; location: string | null }> => {
    provider.user = user
    const begun = await open(path)
    expect(begun.status).toBe(303)
    const back = await provider.visit(begun.headers.get('location') ?? '')
    const finished = await open(`/callback${back.search}`, cookiesOf(begun))
    return { cookie: cookiesOf(finished), location: finished.headers.get('location') }
  }

  it('L1 works with a real provider, and returns to the page that was wanted', async () => {
    const { cookie, location } = await logIn('ann', '?after=1.x')
    expect(location).toBe('/approvals?after=1.x')
    expect(await (await open('', cookie)).text()).toContain('Waiting for you')
  })

  it('L1 lets a member decide without any script, and refuses the caller', async () => {
    await ask('scriptless')
    const caller = await logIn('erin')
    expect(await (await open('/r/scriptless', caller.cookie)).text()).toContain(
      'You cannot decide this yourself',
    )
    const { cookie } = await logIn('ann')
    const page = await (await open('/r/scriptless', cookie)).text()
    const csrf = /id="main".*name="csrf" value="([^"]+)"/s.exec(page)?.[1] ?? ''
    const decide = (as: string) =>
      open('/r/scriptless', as, { method: 'POST', body: new URLSearchParams({ csrf, decision: 'deny' }) })
    expect((await decide(caller.cookie)).status).toBe(403)
    expect(await stateOf('scriptless')).toBe('open')
    expect(await (await decide(cookie)).text()).toContain('You have denied this.')
    expect(await stateOf('scriptless')).toBe('denied')
  })

  it('L1 returns to the inbox if the page that was wanted looks like another site', async () => {
    provider.user = 'ann'
    const begun = await approvals.fetch(new Request(`${origin}//evil.example/approvals`))
    const back = await provider.visit(begun.headers.get('location') ?? '')
    const finished = await open(`/callback${back.search}`, cookiesOf(begun))
    expect(finished.headers.get('location')).toBe('/approvals')
  })

  it('L1 refuses a callback that another browser began, and a session that was altered', async () => {
    const begun = await open('')
    expect(begun.headers.getSetCookie()[0]).toMatch(/HttpOnly; SameSite=Lax/)
    const back = await provider.visit(begun.headers.get('location') ?? '')
    expect((await open(`/callback${back.search}`)).status).toBe(400)
    const other = await open('')
    const crossed = await open(`/callback${back.search}`, cookiesOf(other))
    expect(crossed.status).toBe(503)
    expect(crossed.headers.getSetCookie()).toEqual([])
    const { cookie } = await logIn('ann')
    expect((await open('', cookie)).status).toBe(200)
    const altered = cookie.replace(/(rondo-approvals=r1\.)./, '$1_')
    expect((await open('', altered)).status).toBe(303)
  })
})
