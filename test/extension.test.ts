/** An extension on a server that listens, under every carrier, while it drains and while one instance replaces another. */

import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import type { CallFacts, Extension } from 'rondo/extension'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from './support/older-client.ts'
import { follow, send } from './support/task-client.ts'
import { connectTurns } from './support/turns-client.ts'

const servers: Server[] = []
afterEach(() => Promise.all(servers.splice(0).map((server) => server.close())))

function create(extension: Extension, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'x',
    version: '1',
    keys: generateKey(),
    log: 'off',
    dev: true,
    ...options,
  })
  server.use(extension)
  servers.push(server)
  const schema = z.object({ name: z.string() })
  server.tool('greet', { task: options.store ? 'auto' : undefined }, async (_, ctx) => {
    const { name } = await ctx.ask('who', { message: 'Who?', schema })
    return `Hello, ${name}`
  })
  return server
}

function deferred<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}

const listen = (server: Server) => server.listen({ port: 0, signals: false })
const CAPABILITIES = { elicitation: { form: {} } }
const ANN = { action: 'accept', content: { name: 'Ann' } }

describe('a step around calls', () => {
  function recording(): { readonly seen: CallFacts[]; readonly extension: Extension } {
    const seen: CallFacts[] = []
    const extension: Extension = {
      name: 'recording',
      around(call, next) {
        seen.push(call)
        return next()
      },
    }
    return { seen, extension }
  }
  const ofGreet = (seen: readonly CallFacts[], kind: CallFacts['kind'] = 'request') =>
    seen.filter(({ method, kind: is }) => method === 'tools/call' && is === kind)

  it('runs once per round', async () => {
    const { seen, extension } = recording()
    const { url } = await listen(create(extension))
    const remote = { fetch: (request: Request) => fetch(new Request(url, request)) }
    const capabilities = CAPABILITIES
    const first = await send(remote, 'tools/call', { name: 'greet' }, { capabilities })
    const requestState = String(first.result?.requestState)
    const params = { name: 'greet', inputResponses: { who: ANN }, requestState }
    const last = await send(remote, 'tools/call', params, { capabilities })
    expect(last.result).toMatchObject({ content: [{ text: 'Hello, Ann' }] })
    expect(ofGreet(seen).map(({ continues }) => continues)).toEqual([false, true])
  })

  it('runs once per call that is asked by push, and serves methods of its own', async () => {
    const { seen, extension } = recording()
    const methods = { 'vendor/echo': (params: object) => ({ params }) }
    const { url } = await listen(create({ ...extension, methods }))
    const client = await connectOlder(url, { capabilities: CAPABILITIES, answer: () => ANN })
    const { result } = await client.call('tools/call', { name: 'greet', arguments: {} })
    expect(result).toMatchObject({ content: [{ text: 'Hello, Ann' }] })
    expect(ofGreet(seen)).toMatchObject([{ target: 'greet', protocolVersion: '2025-11-25' }])
    expect((await client.call('vendor/echo', { a: 1 })).result).toMatchObject({ params: { a: 1 } })
    expect((await client.call('vendor/other')).error).toMatchObject({ code: -32601 })
  })

  it('runs once per turn of a client that takes turns', async () => {
    const { seen, extension } = recording()
    const server = create(extension)
    const client = await connectTurns(server.fetch, 'http://127.0.0.1/mcp')
    const asked = await client.request('tools/call', { name: 'greet', arguments: {} })
    expect(await client.answer(asked, [ANN])).toMatchObject({
      message: { result: { content: [{ text: 'Hello, Ann' }] } },
    })
    expect(ofGreet(seen).map(({ continues }) => continues)).toEqual([false, true])
  })

  it('runs once per request and once per turn of a task', async () => {
    const { seen, extension } = recording()
    const server = create(extension, { store: createMemoryStore() })
    const { result } = await send(server, 'tools/call', { name: 'greet' })
    const taskId = String(result?.taskId)
    expect(await follow(server, taskId, { who: { name: 'Ann' } })).toMatchObject({ status: 'completed' })
    expect(ofGreet(seen)).toHaveLength(1)
    const turns = ofGreet(seen, 'turn')
    expect(turns.map(({ task }) => task)).toEqual([taskId, taskId])
    expect(new Set(turns.map(({ turn }) => turn)).size).toBe(2)
  })

  it('refuses an older call with a result or an error', async () => {
    const around: Extension['around'] = async ({ method }, next) =>
      method === 'tools/call' ? { kind: 'complete', result: { content: [], isError: true } } : next()
    const { url } = await listen(create({ name: 'no', around }))
    const client = await connectOlder(url, { capabilities: CAPABILITIES, answer: () => ANN })
    const { result } = await client.call('tools/call', { name: 'greet', arguments: {} })
    expect(result).toMatchObject({ isError: true })
    expect(client.asked).toEqual([])
  })
})

describe('a route', () => {
  /** A request that waits in the handler until it is released. */
  function gate(): {
    extension: Extension
    entered: Promise<AbortSignal>
    release: () => void
    aborted: Promise<void>
  } {
    const entered = deferred<AbortSignal>()
    const released = deferred<void>()
    const aborted = deferred<void>()
    const extension: Extension = {
      name: 'pages',
      routes: {
        '/slow': async (request) => {
          request.signal.addEventListener('abort', () => aborted.resolve())
          entered.resolve(request.signal)
          await released.promise
          return new Response('done', { headers: { 'Set-Cookie': 'a=1' } })
        },
        '/form': async (request) => {
          const fields = await request.formData()
          const headers = new Headers({ Location: `/form/${fields.get('id')}` })
          headers.append('Set-Cookie', 'a=1')
          headers.append('Set-Cookie', 'b=2')
          return new Response(null, { status: 303, headers })
        },
        '/cookie': (request) => new Response(request.headers.get('cookie')),
        '/endless': () => {
          const chunk = new TextEncoder().encode('x'.repeat(1_000))
          return new Response(new ReadableStream({ pull: (controller) => controller.enqueue(chunk) }))
        },
        '/torn': () => {
          const chunk = new TextEncoder().encode('half')
          let sent = false
          return new Response(
            new ReadableStream({
              pull(controller) {
                if (sent) controller.error(new Error('secret'))
                else controller.enqueue(chunk)
                sent = true
              },
            }),
          )
        },
      },
    }
    return { extension, entered: entered.promise, release: released.resolve, aborted: aborted.promise }
  }

  it('serves a form of its own page, with cookies', async () => {
    const { extension } = gate()
    const { url } = await listen(create(extension))
    const { origin } = new URL(url)
    const body = new URLSearchParams({ id: '7' })
    const posted = await fetch(`${origin}/form`, {
      method: 'POST',
      body,
      headers: { origin },
      redirect: 'manual',
    })
    expect([posted.status, posted.headers.get('location')]).toEqual([303, '/form/7'])
    expect(posted.headers.getSetCookie()).toEqual(['a=1', 'b=2'])
    const read = await fetch(`${origin}/cookie`, { headers: { cookie: 'a=1; b=2' } })
    expect(await read.text()).toBe('a=1; b=2')
    const bare = await fetch(`${origin}/cookie`, { method: 'HEAD', headers: { cookie: 'a=1' } })
    expect([bare.status, await bare.text()]).toEqual([200, ''])
  })

  it('counts as in flight while the server drains, and new requests are refused', async () => {
    const { extension, entered, release } = gate()
    const server = create(extension)
    const { url } = await listen(server)
    const { origin } = new URL(url)
    const response = fetch(`${origin}/slow`)
    await entered
    let closed = false
    const closing = server.close().then(() => {
      closed = true
    })
    await expect.poll(async () => (await fetch(`${origin}/cookie`)).status).toBe(503)
    expect(closed).toBe(false)
    release()
    expect(await (await response).text()).toBe('done')
    await closing
  })

  it('loses no request while one instance replaces another', async () => {
    const keys = generateKey()
    const [old, young] = [gate(), gate()]
    const leaving = create(old.extension, { keys })
    const { url } = await listen(leaving)
    const response = fetch(`${new URL(url).origin}/slow`)
    await old.entered
    const closing = leaving.close()
    const { url: next } = await listen(create(young.extension, { keys }))
    const taken = await fetch(`${new URL(next).origin}/cookie`, { headers: { cookie: 'a=1' } })
    expect(await taken.text()).toBe('a=1')
    old.release()
    expect((await response).status).toBe(200)
    await closing
  })

  it('aborts the signal of a request whose client goes away', async () => {
    const { extension, entered, release, aborted } = gate()
    const { url } = await listen(create(extension))
    const leaving = new AbortController()
    const response = fetch(`${new URL(url).origin}/slow`, { signal: leaving.signal })
    expect((await entered).aborted).toBe(false)
    leaving.abort()
    await expect(response).rejects.toThrow()
    await aborted
    release()
  })

  it('R11 survives a body that never ends, one that breaks, and paths that name another host', async () => {
    const { extension } = gate()
    const { url } = await listen(create(extension))
    const { origin } = new URL(url)
    const leaving = new AbortController()
    const endless = await fetch(`${origin}/endless`, { signal: leaving.signal })
    const reader = endless.body?.getReader()
    expect((await reader?.read())?.value?.length).toBeGreaterThan(0)
    leaving.abort()
    await expect(fetch(`${origin}/torn`).then((torn) => torn.text())).rejects.toThrow()
    expect((await fetch(`${origin}//evil.example/cookie`)).status).toBe(404)
    expect((await fetch(`${origin}/cookie`, { headers: { cookie: 'a=1' } })).status).toBe(200)
  })
})
