import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import { type Said, type Seen, scriptServer } from '../../../../test/support/scripted-server.ts'
import { connect } from './connect.ts'
import type { ServerChange } from './subscribe.ts'

interface Line {
  send(method: string, params?: object, id?: unknown): void
  raw(text: string): void
  end(): void
  break(): void
}

/** A stream that a test writes to. What is written at once arrives at once. */
function streaming(onOpen: (line: Line, seen: Seen, turn: number) => void) {
  return (seen: Seen, turn: number): Said => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        let waiting = ''
        const flush = () => {
          if (waiting !== '') controller.enqueue(new TextEncoder().encode(waiting))
          waiting = ''
        }
        const put = (text: string) => {
          if (waiting === '') queueMicrotask(flush)
          waiting += text
        }
        const write = (message: object) => put(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`)
        const close = () => {
          flush()
          controller.close()
        }
        const line: Line = {
          send: (method, params = {}, id = seen.id) =>
            write({ method, params: { ...params, _meta: { 'io.modelcontextprotocol/subscriptionId': id } } }),
          raw: put,
          end: () => {
            write({ id: seen.id, result: { resultType: 'complete' } })
            close()
          },
          break: close,
        }
        line.send('notifications/subscriptions/acknowledged', { notifications: seen.params.notifications })
        onOpen(line, seen, turn)
      },
    })
    return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } })
  }
}

const toolsChanged = 'notifications/tools/list_changed'
const updated = 'notifications/resources/updated'

async function collect(changes: AsyncIterable<ServerChange>): Promise<ServerChange[]> {
  const all: ServerChange[] = []
  for await (const change of changes) all.push(change)
  return all
}

describe('a subscription', () => {
  it('B10 declares what can be asked if it names tasks, so that the server shows their questions', async () => {
    const server = scriptServer(streaming((line) => line.end()))
    const client = await connect(server, { answers: { sampling: () => ({}) as never } })
    await collect(client.subscribe({ taskIds: ['task-1'] }))
    await collect(client.subscribe({ toolsListChanged: true }))
    const [about, plain] = server.seen.map(({ meta }) => meta['io.modelcontextprotocol/clientCapabilities'])
    expect(about).toEqual({
      elicitation: { form: {}, url: {} },
      sampling: {},
      extensions: { 'io.modelcontextprotocol/tasks': {} },
    })
    expect(plain).toEqual({})
  })

  it('reports changes until the server ends it', async () => {
    const server = scriptServer(
      streaming((line) => {
        line.send(toolsChanged)
        line.raw(': still here\n\n')
        line.send(updated, { uri: 'a:b' })
        line.send(toolsChanged, {}, 'somebody else')
        line.end()
      }),
    )
    const client = await connect(server)
    const subscription = client.subscribe({ toolsListChanged: true, resourceSubscriptions: ['a:b'] })
    expect(await subscription.filter).toEqual({ toolsListChanged: true, resourceSubscriptions: ['a:b'] })
    expect(await collect(subscription)).toEqual([{ kind: 'tools' }, { kind: 'resource', uri: 'a:b' }])
    expect(server.seen[0]?.method).toBe('subscriptions/listen')
  })

  it('reports each thing once to a slow reader', async () => {
    const server = scriptServer(
      streaming((line) => {
        for (let i = 0; i < 1_000; i++) line.send(toolsChanged)
        line.send(updated, { uri: 'a:b' })
        line.end()
      }),
    )
    const client = await connect(server)
    const subscription = client.subscribe({ toolsListChanged: true })
    await subscription.filter
    expect(await collect(subscription)).toEqual([{ kind: 'tools' }, { kind: 'resource', uri: 'a:b' }])
  })

  it('T22 keeps a limited number of changes', async () => {
    const server = scriptServer(
      streaming((line) => {
        for (let i = 0; i < 3_000; i++) line.send(updated, { uri: `a:${i}` })
        line.end()
      }),
    )
    const subscription = (await connect(server)).subscribe({})
    await subscription.filter
    const changes = await collect(subscription)
    expect(changes.length).toBeLessThanOrEqual(1_024)
    expect(changes[0]).toEqual({ kind: 'gap' })
  })

  it('is opened again under a new id when the stream breaks, and reports a gap', async () => {
    const clock = createManualClock()
    const server = scriptServer(
      streaming((line, _seen, turn) => {
        if (turn < 2) line.break()
        else line.end()
      }),
    )
    const client = await connect(server, { clock })
    const all = collect(client.subscribe({ toolsListChanged: true }))
    await clock.elapse(250)
    await clock.elapse(250)
    expect(await all).toEqual([{ kind: 'gap' }, { kind: 'gap' }])
    expect(new Set(server.seen.map(({ id }) => id)).size).toBe(3)
  })

  it('fails if the server stays unreachable', async () => {
    const clock = createManualClock()
    const server = scriptServer(() => {
      throw new Error('down')
    })
    const client = await connect(server, { clock })
    const subscription = client.subscribe({}, { retries: 2 })
    const all = expect(collect(subscription)).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    for (const ms of [250, 500]) await clock.elapse(ms)
    await all
    await expect(subscription.filter).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
  })

  it('fails at once if the server refuses it', async () => {
    const client = await connect(scriptServer({ error: { code: -32601, message: 'no' } }))
    await expect(collect(client.subscribe({}))).rejects.toMatchObject({ peer: { code: -32601 } })
  })

  it.each(['leaving the loop', 'close', 'a signal'])('ends by %s, and closes the connection', async (how) => {
    const controller = new AbortController()
    const server = scriptServer(streaming((line) => line.send(toolsChanged)))
    const client = await connect(server)
    const subscription = client.subscribe({}, { signal: controller.signal })
    const read = async () => {
      for await (const _ of subscription) {
        if (how === 'leaving the loop') break
        if (how === 'close') subscription.close()
        else controller.abort(new Error('stop'))
      }
    }
    if (how === 'a signal') await expect(read()).rejects.toThrow('stop')
    else await read()
    expect(server.seen[0]?.signal.aborted).toBe(true)
  })

  it('C12 times out at a server that never accepts the subscription', async () => {
    const clock = createManualClock()
    const client = await connect(
      scriptServer(() => new Promise(() => {})),
      { clock, timeoutMs: 700 },
    )
    const all = expect(collect(client.subscribe({}))).rejects.toMatchObject({ code: 'LIMIT_CLIENT_TIMEOUT' })
    await clock.elapse(700)
    await all
  })

  it('removes what changed from the cache', async () => {
    let change = () => {}
    const list = { resultType: 'complete', tools: [], ttlMs: 60_000, cacheScope: 'private' }
    const listening = streaming((line) => {
      change = () => line.send(toolsChanged)
    })
    const server = scriptServer(list, listening, list)
    const client = await connect(server)
    await client.listTools()
    await client.listTools()
    expect(server.seen).toHaveLength(1)
    const subscription = client.subscribe({ toolsListChanged: true })
    await subscription.filter
    const next = subscription[Symbol.asyncIterator]().next()
    change()
    expect(await next).toEqual({ done: false, value: { kind: 'tools' } })
    await client.listTools()
    expect(server.seen).toHaveLength(3)
    subscription.close()
  })
})
