import { request as httpRequest } from 'node:http'
import type { InputRequest, InputResponse } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createAskPage } from './page.ts'

const FORM: InputRequest = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: '<script>alert(1)</script> Where & when?',
    requestedSchema: {
      type: 'object',
      properties: {
        place: { type: 'string', title: 'Place "here"', maxLength: 10 },
        seats: { type: 'integer', minimum: 1 },
        sure: { type: 'boolean' },
        kind: { type: 'string', enum: ['in', 'out'] },
        extras: { type: 'array', items: { type: 'string', enum: ['tea', 'milk'] } },
      },
      required: ['place', 'sure'],
    },
  },
}

async function asked(request: InputRequest = FORM, abort = new AbortController()) {
  const links: URL[] = []
  const page = createAskPage({ open: async (url) => links.push(url) > 0 })
  onTestFinished(() => page.close())
  const answer = page.ask({
    upstream: 'crm',
    server: 'The <b>CRM</b>',
    method: 'tools/call',
    target: 'book',
    request,
    signal: abort.signal,
  })
  await expect.poll(() => links.length).toBe(1)
  const [once = new URL('http://none')] = links
  return { page, once, link: await opened(once), answer, abort }
}

/** The address of the page that a link leads to. */
async function opened(once: URL): Promise<URL> {
  const { status, location } = await send(once)
  expect(status).toBe(303)
  return new URL(location, once)
}

interface Sent {
  readonly method?: string
  readonly path?: string
  readonly headers?: Record<string, string>
  readonly body?: string
}

/** A request with exactly these headers, as `fetch` would not send it. */
function send(
  link: URL,
  { method = 'GET', path = link.pathname, headers = {}, body }: Sent = {},
): Promise<{ status: number; text: string; location: string }> {
  return new Promise((done, fail) => {
    const sent = httpRequest(
      { host: link.hostname, port: link.port, method, path, headers: { host: link.host, ...headers } },
      (response) => {
        let text = ''
        response.on('data', (chunk) => {
          text += chunk
        })
        const { location = '' } = response.headers
        response.on('end', () => done({ status: response.statusCode ?? 0, text, location }))
      },
    )
    sent.on('error', fail)
    sent.end(body)
  })
}

const tokenIn = (html: string): string => /name="token" value="([\w-]+)"/.exec(html)?.[1] ?? ''

async function post(
  link: URL,
  fields: Record<string, string>,
  headers: Record<string, string> = { origin: link.origin },
) {
  const token = tokenIn((await send(link)).text)
  const body = new URLSearchParams({ token, ...fields }).toString()
  return send(link, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
    body,
  })
}

const isOpen = async (answer: Promise<InputResponse>): Promise<boolean> =>
  (await Promise.race([answer, new Promise((done) => setImmediate(done, 'open'))])) === 'open'

describe('the page of rondo bridge', () => {
  it('shows who asks and the fields, escapes the texts of the server, and has no script', async () => {
    const { link } = await asked()
    const { status, text } = await send(link)
    expect(status).toBe(200)
    expect(text).toContain('A question from crm (The &lt;b&gt;CRM&lt;/b&gt;)')
    expect(text).toContain('&lt;script&gt;alert(1)&lt;/script&gt; Where &amp; when?')
    expect(text).toContain('Place &quot;here&quot;')
    expect(text).not.toMatch(/<script/i)
  })

  it('escapes every text of the server: titles, descriptions, options, defaults, and what was typed', async () => {
    const evil = `"'><img src=x onerror=alert(1)>`
    const text = { title: evil, description: evil }
    const options = [{ const: evil, title: evil }]
    const properties = {
      [evil]: { type: 'string', default: evil, ...text },
      one: { type: 'string', oneOf: options, ...text },
      some: { type: 'array', items: { anyOf: options }, ...text },
      sure: { type: 'boolean', ...text },
    }
    const requestedSchema = { type: 'object', properties, required: ['sure'] } as const
    const params = { mode: 'form', message: evil, requestedSchema } as const
    const { link } = await asked({ method: 'elicitation/create', params } as InputRequest)
    const shown = [(await send(link)).text, (await post(link, { do: 'accept', f0: evil, f1: evil })).text]
    for (const html of shown) {
      expect(html.match(/&lt;img/g)?.length).toBeGreaterThan(8)
      expect(html).not.toContain('<img')
      expect(html).not.toContain(`"'`)
    }
  })

  it('shows a field that is named like a member of every object as empty', async () => {
    const requestedSchema = {
      type: 'object',
      properties: { toString: { type: 'string' }, valueOf: { type: 'string' } },
    }
    const params = { mode: 'form', message: 'Odd?', requestedSchema } as const
    const { link } = await asked({ method: 'elicitation/create', params } as InputRequest)
    const { text } = await send(link)
    expect(text).toContain('name="f1"')
    expect(text).not.toContain('native code')
  })

  it('returns what was sent, in the types of the schema', async () => {
    const { link, answer } = await asked()
    const sent = await post(link, { do: 'accept', f0: 'Oslo', f1: '4', f2: 'true', f3: 'out', f4: 'tea' })
    expect(sent).toMatchObject({ status: 200 })
    const content = { place: 'Oslo', seats: 4, sure: true, kind: 'out', extras: ['tea'] }
    expect(await answer).toEqual({ action: 'accept', content })
  })

  it('shows what is wrong, keeps what was typed, and stays open', async () => {
    const { link, answer } = await asked()
    const { status, text } = await post(link, { do: 'accept', f0: 'far too long a place', f2: 'false' })
    expect(status).toBe(422)
    expect(text).toMatch(/class="problem"/)
    expect(text).toContain('value="far too long a place"')
    expect(await isOpen(answer)).toBe(true)
  })

  it.each(['decline', 'cancel'] as const)('takes a %s', async (action) => {
    const { link, answer } = await asked()
    await post(link, { do: action })
    expect(await answer).toEqual({ action })
  })

  it('is not reached by a link that was opened, because others can read it in a command line', async () => {
    const { once, link, answer } = await asked()
    expect(link.pathname).not.toBe(once.pathname)
    for (const method of ['GET', 'POST', 'HEAD'])
      expect((await send(once, { method, headers: { origin: once.origin } })).status).toBe(404)
    // Whoever opened it can load the page again.
    expect(tokenIn((await send(link)).text)).toBe(tokenIn((await send(link)).text))
    expect(await isOpen(answer)).toBe(true)
  })

  it('works once', async () => {
    const { link, answer } = await asked()
    const token = tokenIn((await send(link)).text)
    const body = `token=${token}&do=decline`
    const form = { method: 'POST', headers: { origin: link.origin }, body }
    expect((await send(link, form)).status).toBe(200)
    expect((await send(link, form)).status).toBe(404)
    expect((await send(link)).status).toBe(404)
    expect(await answer).toEqual({ action: 'decline' })
  })

  it('takes one of two forms that arrive together, and tells the other that the question is gone', async () => {
    const { link, answer } = await asked()
    const token = tokenIn((await send(link)).text)
    const form = (action: string) =>
      send(link, {
        method: 'POST',
        headers: { origin: link.origin },
        body: `token=${token}&do=${action}`,
      })
    const statuses = (await Promise.all([form('decline'), form('cancel')])).map(({ status }) => status)
    expect(statuses.toSorted()).toEqual([200, 404])
    expect(await answer).toEqual({ action: statuses[0] === 200 ? 'decline' : 'cancel' })
  })

  it('does not take a form whose end arrives after another one was taken', async () => {
    const { link, answer } = await asked()
    const token = tokenIn((await send(link)).text)
    const headers = { host: link.host, origin: link.origin, expect: '100-continue' }
    const late = httpRequest(link, { method: 'POST', headers })
    const status = new Promise<number>((done, fail) => {
      late.on('response', (response) => done(response.resume().statusCode ?? 0))
      late.on('error', fail)
    })
    // The page has found the question when it asks for the rest of the form.
    const isAwaited = new Promise<void>((done) => late.once('continue', done))
    late.flushHeaders()
    await isAwaited
    await post(link, { do: 'decline' })
    late.end(`token=${token}&do=accept`)
    expect(await status).toBe(404)
    expect(await answer).toEqual({ action: 'decline' })
  })

  it('asks in another way where no browser can be opened, and the first answer wins', async () => {
    const signals: AbortSignal[] = []
    const otherwise = {
      kinds: ['form'] as const,
      ask: ({ signal }: { signal: AbortSignal }) => {
        signals.push(signal)
        return new Promise<InputResponse>((resolve) => {
          if (signals.length === 1) resolve({ action: 'decline' })
        })
      },
      close() {},
    }
    const links: URL[] = []
    const page = createAskPage({ open: async (url) => links.push(url) < 0, otherwise })
    onTestFinished(() => page.close())
    const ask = () =>
      page.ask({
        upstream: 'crm',
        method: 'tools/call',
        target: 'book',
        request: FORM,
        signal: new AbortController().signal,
      })
    expect(await ask()).toEqual({ action: 'decline' })
    const second = ask()
    await expect.poll(() => signals.length).toBe(2)
    expect((await post(await opened(links[1] as URL), { do: 'cancel' })).status).toBe(200)
    expect(await second).toEqual({ action: 'cancel' })
    expect(signals[1]?.aborted).toBe(true)
  })

  it('is gone when the call has ended', async () => {
    const { link, answer, abort } = await asked()
    abort.abort()
    expect(await answer).toEqual({ action: 'cancel' })
    expect((await send(link)).status).toBe(404)
  })

  it.each<[string, number, (link: URL, token: string) => Sent]>([
    ['another name of this machine', 403, () => ({ headers: { host: 'evil.example' } })],
    ['another port', 403, () => ({ headers: { host: '127.0.0.1:1' } })],
    ['another path', 404, () => ({ path: '/' })],
    ['a path that is nearly right', 404, (link) => ({ path: link.pathname.slice(0, -1) })],
    [
      'a form of another page',
      403,
      (_link, token) => ({
        method: 'POST',
        headers: { origin: 'https://evil.example' },
        body: `token=${token}&do=decline`,
      }),
    ],
    [
      'a form without an origin',
      403,
      (_link, token) => ({ method: 'POST', body: `token=${token}&do=decline` }),
    ],
    [
      'a form without the token',
      403,
      (link) => ({ method: 'POST', headers: { origin: link.origin }, body: 'do=decline' }),
    ],
    [
      'a form with another token',
      403,
      (link) => ({
        method: 'POST',
        headers: { origin: link.origin },
        body: `token=${'A'.repeat(32)}&do=decline`,
      }),
    ],
    ['another method', 405, () => ({ method: 'PUT' })],
    [
      'an answer that does not exist',
      400,
      (link, token) => ({
        method: 'POST',
        headers: { origin: link.origin },
        body: `token=${token}&do=approve`,
      }),
    ],
    [
      'a form that is too long',
      413,
      (link) => ({ method: 'POST', headers: { origin: link.origin }, body: 'x'.repeat(70_000) }),
    ],
  ])('refuses %s, and the question stays open', async (_name, status, make) => {
    const { link, answer } = await asked()
    const token = tokenIn((await send(link)).text)
    expect(token).not.toBe('')
    expect((await send(link, make(link, token))).status).toBe(status)
    expect(await isOpen(answer)).toBe(true)
  })

  it('R9 has 32 questions open at most, and cancels one more, even if they come together', async () => {
    const page = createAskPage({ open: async () => true })
    const { signal } = new AbortController()
    const facts = { upstream: 'crm', method: 'tools/call', target: 'book', request: FORM, signal } as const
    const answers = Array.from({ length: 33 }, () => page.ask(facts))
    expect(await answers[32]).toEqual({ action: 'cancel' })
    expect(await isOpen(Promise.race(answers.slice(0, 32)))).toBe(true)
    page.close()
    await Promise.all(answers)
  })

  it('shows the whole address and the host of a link, and none that is not safe', async () => {
    const url = (address: string): InputRequest => ({
      method: 'elicitation/create',
      params: { mode: 'url', message: 'Pay', url: address },
    })
    const { link, answer } = await asked(url('https://pay.example/42?x=1'))
    expect((await send(link)).text).toMatch(/<b>pay\.example<\/b>.*https:\/\/pay\.example\/42\?x=1/)
    await post(link, { do: 'accept' })
    expect(await answer).toEqual({ action: 'accept' })
    const bad = await asked(url('javascript:alert(1)'))
    expect((await send(bad.link)).text).not.toContain('javascript:')
  })
})
