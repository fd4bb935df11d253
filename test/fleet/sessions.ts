/** Sessions of older clients on several instances that share a store: what changes is known to all of them. */

import { expect, it } from 'vitest'
import { z } from 'zod'
import type { OpenHandle } from '../support/fleet-stores.ts'
import type { Message, OlderClient, OpenStream } from '../support/older-client.ts'
import { startFleet } from '../support/older-fleet.ts'
import { until } from '../support/store/store-harness.ts'

async function next(stream: OpenStream, method: string): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.method === method) return message
  }
  throw new Error(`The stream ended before ${method}`)
}

const ADA = { action: 'accept', content: { name: 'Ada' } }

async function responseOf(stream: OpenStream, id: number): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.id === id && message.method === undefined) return message
  }
  throw new Error(`The stream ended without a response (HTTP ${stream.status})`)
}

/** Short, because tests wait for it; instances that live renew theirs in time on any machine. */
const LEASE_MS = 1_500

const ping = (client: OlderClient) => client.post({ jsonrpc: '2.0', id: 99, method: 'ping' })

/** Tests of a fleet that shares a store. */
export function describeSessions(share: () => Promise<OpenHandle>): void {
  it('J1 T26 a session that was ended on one instance is unknown to all of them, and its streams end', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(3, () => ({ store: open() }))
    const client = await connect()
    route(2)
    const stream = await client.get()
    expect(stream.status).toBe(200)
    route(1)
    expect((await client.remove()).status).toBe(200)
    for (let i = 0; i < 3; i++) expect((await ping(client)).status).toBe(404)
    expect((await client.remove()).status).toBe(404)
    expect(await stream.next()).toBeUndefined()
    expect(instances).toHaveLength(3)
  })

  it.each([
    ['', {}],
    [' of the drafts', { experimental: { 'multi-turn-sse': {}, 'request-state': {} } }],
  ])(
    'J1 F5 the log level and the end of a session%s, set on one instance, count on all of them',
    async (_kind, drafts) => {
      const open = await share()
      const { connect, instances } = await startFleet(2, () => ({ store: open() }))
      for (const { server } of instances)
        server.tool('log', {}, (_args, ctx) => {
          ctx.log('info', 'a line')
          return ''
        })
      const client = await connect({ capabilities: { elicitation: {}, ...drafts } })
      const logs = () => client.received.filter(({ method }) => method === 'notifications/message').length
      for (let i = 0; i < 2; i++) {
        await client.call('logging/setLevel', { level: 'error' })
        const before = logs()
        for (let call = 0; call < 2; call++) await client.call('tools/call', { name: 'log', arguments: {} })
        expect(logs()).toBe(before)
      }
      await client.call('logging/setLevel', { level: 'info' })
      for (let call = 0; call < 2; call++) await client.call('tools/call', { name: 'log', arguments: {} })
      expect(logs()).toBe(2)
      expect((await client.remove()).status).toBe(200)
      for (let i = 0; i < 2; i++) expect((await ping(client)).status).toBe(404)
    },
  )

  it('J2 a resource that was subscribed to on one instance and updated on another is announced on the stream of a third', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(3, () => ({ store: open() }))
    const client = await connect()
    route(2)
    const stream = await client.get()
    route(0)
    await client.call('resources/subscribe', { uri: 'test://watched' })
    instances[1]?.server.updated('test://other')
    instances[1]?.server.updated('test://watched')
    expect(await next(stream, 'notifications/resources/updated')).toMatchObject({
      params: { uri: 'test://watched' },
    })
    route(1)
    await client.call('resources/unsubscribe', { uri: 'test://watched' })
    instances[0]?.server.updated('test://watched')
    instances[0]?.server.tool('new', {}, () => '')
    expect(await next(stream, 'notifications/tools/list_changed')).toBeDefined()
    expect(stream.messages.filter(({ method }) => method === 'notifications/resources/updated')).toHaveLength(
      1,
    )
  })

  it('J2 a subscription of 2026-07-28 learns of changes on every instance', async () => {
    const open = await share()
    const { instances } = await startFleet(2, () => ({ store: open() }))
    const [first, second] = instances
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
    }
    const notifications = {
      toolsListChanged: true,
      promptsListChanged: true,
      resourceSubscriptions: ['test://watched'],
    }
    const response = await fetch(first?.url ?? '', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'subscriptions/listen',
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'subscriptions/listen',
        params: { notifications, _meta: meta },
      }),
    })
    let text = ''
    const reading = (async () => {
      for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) text += chunk
    })()
    await until('the acknowledgement', () => text.includes('acknowledged'))
    second?.server.tool('new', {}, () => '')
    second?.server.prompt('new', {}, () => 'text')
    second?.server.updated('test://watched')
    await until('all three', () =>
      ['tools/list_changed', 'prompts/list_changed', 'test://watched"}'].every((part) =>
        text.slice(text.indexOf('\n\n')).includes(part.replace('"}', '')),
      ),
    )
    await first?.server.close()
    await reading
  })

  it('J1 a response reaches the call that waits on another instance, with the progress that follows', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(3, () => ({ store: open() }))
    const client = await connect()
    route(0)
    const params = { name: 'ask', _meta: { progressToken: 'p' } }
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params })
    const { id } = await next(stream, 'elicitation/create')
    route(1)
    expect((await client.respond(id, ADA)).status).toBe(202)
    route(2)
    // The first answer wins, wherever a second one arrives.
    expect((await client.respond(id, { action: 'decline' })).status).toBe(202)
    expect(await responseOf(stream, 5)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
    expect(instances.map(({ runs }) => runs())).toEqual([2, 0, 0])
    const progress = stream.messages.flatMap(({ method, params: given }) =>
      method === 'notifications/progress' ? [(given as { progress: number }).progress] : [],
    )
    expect(progress).toEqual([1, 2])
  })

  it('J1 T1 an answer that comes from another session has no effect', async () => {
    const open = await share()
    const { connect, route } = await startFleet(2, () => ({ store: open() }))
    const [client, eve] = [await connect(), await connect()]
    route(0)
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'ask' } })
    const { id } = await next(stream, 'elicitation/create')
    route(1)
    expect((await eve.respond(id, { action: 'accept', content: { name: 'Eve' } })).status).toBe(202)
    route(1)
    expect((await client.respond(id, ADA)).status).toBe(202)
    expect(await responseOf(stream, 5)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
  })

  it('J1 the stream of a call that waits is resumed at another instance, and nothing is sent twice', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(3, () => ({ store: open() }))
    const client = await connect()
    route(0)
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'ask' } })
    const { id } = await next(stream, 'elicitation/create')
    await stream.drop()
    route(1)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(resumed.status).toBe(200)
    // The instance that had the call before still passes an answer on to it.
    route(0)
    await client.respond(id, ADA)
    expect(await responseOf(resumed, 5)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
    expect(resumed.messages.filter(({ method }) => method === 'elicitation/create')).toHaveLength(0)
    expect(instances.map(({ runs }) => runs())).toEqual([1, 1, 0])
    // The response is kept for a client that lost it.
    route(2)
    const again = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(await responseOf(again, 5)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
  })

  it('J1 the stream of a call that runs is resumed at another instance, and the call is not run again', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(3, () => ({ store: open() }))
    const runs = [0, 0, 0]
    let finish = (): void => {}
    const finished = new Promise<void>((resolve) => {
      finish = resolve
    })
    for (const [index, { server }] of instances.entries())
      server.tool('slow', {}, async (_args, ctx) => {
        await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
        runs[index] = (runs[index] ?? 0) + 1
        await finished
        ctx.progress(1)
        return 'done'
      })
    const client = await connect()
    route(0)
    const params = { name: 'slow', _meta: { progressToken: 'p' } }
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params })
    const { id } = await next(stream, 'elicitation/create')
    route(1)
    await client.respond(id, ADA)
    await until('the call runs', () => runs[0] === 1)
    await stream.drop()
    route(2)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(resumed.status).toBe(200)
    finish()
    expect(await next(resumed, 'notifications/progress')).toMatchObject({ params: { progress: 1 } })
    expect(await responseOf(resumed, 5)).toMatchObject({ result: { content: [{ text: 'done' }] } })
    expect(runs).toEqual([1, 0, 0])
  })

  it('I3 calls that have ended use no room of calls that wait', async () => {
    const open = await share()
    const { connect, instances } = await startFleet(1, () => ({
      store: open(),
      authenticate: () => ({ subject: 'alice' }),
      sessions: { maxKeptBytesPerCaller: 60_000 },
    }))
    const input = z.object({ text: z.string() })
    instances[0]?.server.tool('long', { input }, async (_args, ctx) => {
      await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
      return 'x'.repeat(8_000)
    })
    const client = await connect({ answer: () => ADA })
    for (let i = 0; i < 10; i++) {
      const response = await client.call('tools/call', {
        name: 'long',
        arguments: { text: 'x'.repeat(8_000) },
      })
      expect(response).toMatchObject({ result: { content: [{ text: 'x'.repeat(8_000) }] } })
    }
  })

  it('J1 T1 nobody else resumes the stream of a call', async () => {
    const open = await share()
    const { connect, route } = await startFleet(2, () => ({ store: open(), tasks: { leaseMs: LEASE_MS } }))
    const [client, eve] = [await connect(), await connect()]
    route(0)
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'ask' } })
    await next(stream, 'elicitation/create')
    route(1)
    const stolen = await eve.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(stolen.status).toBe(400)
  })

  it.each([
    ['before the answer', false],
    ['after the answer', true],
  ])(
    'J1 R7 a call whose instance stops %s continues at another one, under the same keys',
    async (_when, early) => {
      const open = await share()
      const keys: string[][] = [[], [], []]
      const fleet = await startFleet(3, () => ({ store: open(), tasks: { leaseMs: LEASE_MS } }))
      const { connect, route, instances } = fleet
      let stuck = true
      for (const [index, { server }] of instances.entries())
        server.tool('order', {}, async (_args, ctx) => {
          const { name } = await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
          await ctx.effect('buy', async ({ key }) => {
            keys[index]?.push(key)
            if (stuck && index === 0) await new Promise(() => {})
          })
          return `Bought for ${name}`
        })
      const client = await connect()
      route(0)
      const stream = await client.post({
        jsonrpc: '2.0',
        id: 5,
        method: 'tools/call',
        params: { name: 'order' },
      })
      const { id } = await next(stream, 'elicitation/create')
      if (early) {
        route(1)
        await client.respond(id, ADA)
        await until('the effect', () => keys[0]?.length === 1)
      }
      // As if it had died: nothing is heard of it any more.
      fleet.vanish(0)
      await stream.drop()
      route(2)
      const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
      expect(resumed.status).toBe(200)
      if (!early) {
        route(1)
        await client.respond(id, ADA)
      }
      expect(await responseOf(resumed, 5)).toMatchObject({
        result: { content: [{ text: 'Bought for Ada' }] },
      })
      expect(resumed.messages.filter(({ method }) => method === 'elicitation/create')).toHaveLength(0)
      const used = keys.flat()
      expect(used.length).toBe(early ? 2 : 1)
      expect(new Set(used).size).toBe(1)
      stuck = false
    },
  )

  it('J1 R6 R7 an effect before the first question has the same key when its instance dies in the middle of it', async () => {
    const open = await share()
    const keys: string[] = []
    const fleet = await startFleet(2, () => ({ store: open(), tasks: { leaseMs: LEASE_MS } }))
    const { connect, route, instances } = fleet
    for (const [index, { server }] of instances.entries())
      server.tool('order', {}, async (_args, ctx) => {
        await ctx.effect('reserve', async ({ key }) => {
          keys.push(key)
          if (index === 0) await new Promise(() => {})
        })
        const { name } = await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
        return `Reserved for ${name}`
      })
    const client = await connect()
    route(0)
    const stream = await client.post({
      jsonrpc: '2.0',
      id: 5,
      method: 'tools/call',
      params: { name: 'order' },
    })
    void stream.next().catch(() => {})
    await until('the effect', () => keys.length === 1)
    await until('an event to resume from', () => stream.ids.length > 0)
    fleet.vanish(0)
    await stream.drop()
    route(1)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    const { id } = await next(resumed, 'elicitation/create')
    route(1)
    await client.respond(id, ADA)
    expect(await responseOf(resumed, 5)).toMatchObject({
      result: { content: [{ text: 'Reserved for Ada' }] },
    })
    expect(keys).toHaveLength(2)
    expect(new Set(keys).size).toBe(1)
  })

  /**
   * Calls a tool on the first instance, which is cut off in its effect, and routes what follows to the second. There the effect
   * ends with `finished`. Returns what the client resumes from.
   */
  const cutOffInEffect = async (
    fleet: Awaited<ReturnType<typeof startFleet>>,
    runs: number[],
    finished?: Promise<void>,
  ) => {
    for (const [index, { server }] of fleet.instances.entries())
      server.tool('order', {}, async (_args, ctx) => {
        await ctx.effect('reserve', async () => {
          runs[index] = (runs[index] ?? 0) + 1
          await (index === 0 ? new Promise(() => {}) : finished)
        })
        return 'Reserved'
      })
    const client = await fleet.connect()
    fleet.route(0)
    const params = { name: 'order' }
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params })
    void stream.next().catch(() => {})
    await until('the effect', () => runs[0] === 1)
    await until('an event to resume from', () => stream.ids.length > 0)
    fleet.vanish(0)
    await stream.drop()
    fleet.route(1)
    return { client, from: { 'last-event-id': stream.ids.at(-1) ?? '' } }
  }

  it('J1 R7 a call that was taken over in the middle of an effect is not taken over again while it runs', async () => {
    const open = await share()
    const runs = [0, 0, 0]
    let finish = (): void => {}
    const finished = new Promise<void>((resolve) => {
      finish = resolve
    })
    const fleet = await startFleet(3, () => ({ store: open(), tasks: { leaseMs: LEASE_MS } }))
    const { client, from } = await cutOffInEffect(fleet, runs, finished)
    const { route } = fleet
    const second = await client.get(from)
    void second.next().catch(() => {})
    await until('the effect on the second instance', () => runs[1] === 1)
    await second.drop()
    route(2)
    const third = await client.get(from)
    finish()
    expect(await responseOf(third, 5)).toMatchObject({ result: { content: [{ text: 'Reserved' }] } })
    expect(runs).toEqual([1, 1, 0])
  })

  it('J1 R2 the first answer to a question counts, also if the instance that asked is gone', async () => {
    const open = await share()
    const fleet = await startFleet(3, () => ({ store: open(), tasks: { leaseMs: LEASE_MS } }))
    const { connect, route } = fleet
    const client = await connect()
    route(0)
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'ask' } })
    const { id } = await next(stream, 'elicitation/create')
    fleet.vanish(0)
    await stream.drop()
    route(1)
    expect((await client.respond(id, ADA)).status).toBe(202)
    route(2)
    await client.respond(id, { action: 'accept', content: { name: 'Eve' } })
    route(2)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(await responseOf(resumed, 5)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
  })

  it('J1 R7 of two instances that take a call over at the same moment, one runs it', async () => {
    const open = await share()
    const runs = [0, 0, 0]
    const arrived = new Set<number>()
    let release = (): void => {}
    const both = new Promise<void>((resolve) => {
      release = resolve
    })
    const fleet = await startFleet(3, (index) => {
      const store = open()
      const { records } = store
      if (index === 0 || !records) return { store, tasks: { leaseMs: LEASE_MS } }
      const gated: typeof records = {
        ...records,
        // Both have read the same version before either writes.
        async put(record) {
          if (record.id.includes(' call ') && !arrived.has(index)) {
            arrived.add(index)
            if (arrived.size === 2) release()
            await both
          }
          return records.put(record)
        },
      }
      return { store: { ...store, records: gated }, tasks: { leaseMs: LEASE_MS } }
    })
    const { client, from } = await cutOffInEffect(fleet, runs)
    const resumed = await Promise.all([client.get(from), client.get(from)])
    await Promise.any(resumed.map((one) => responseOf(one, 5)))
    expect(arrived.size).toBe(2)
    expect(runs[0]).toBe(1)
    expect((runs[1] ?? 0) + (runs[2] ?? 0)).toBe(1)
  })

  it('J1 R7 an instance that lost a call to another one does not remove it when its own client is gone', async () => {
    const open = await share()
    let looks = 0
    const fleet = await startFleet(2, (index) => {
      const store = open()
      const { records } = store
      if (index > 0 || !records) return { store, tasks: { leaseMs: 600_000 } }
      const counted: typeof records = {
        ...records,
        get: (id) => {
          looks += id.includes(' call ') ? 1 : 0
          return records.get(id)
        },
        remove: (id) => {
          looks += id.includes(' call ') ? 1 : 0
          return records.remove(id)
        },
      }
      const sessions = { resumeMs: 100 }
      return { store: { ...store, records: counted }, sessions, tasks: { leaseMs: 600_000 } }
    })
    const { connect, route, instances } = fleet
    const client = await connect()
    route(0)
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'ask' } })
    const { id } = await next(stream, 'elicitation/create')
    fleet.vanish(0)
    route(1)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    fleet.appear(0)
    const before = looks
    await stream.drop()
    await until('the first instance has noticed', () => looks > before)
    route(1)
    expect((await client.respond(id, ADA)).status).toBe(202)
    expect(await responseOf(resumed, 5)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
    expect(instances.map(({ runs }) => runs())).toEqual([1, 1])
  })

  it('J1 R7 a call that only waits is taken over without waiting for the lease, and its former instance runs nothing', async () => {
    const open = await share()
    const fleet = await startFleet(3, () => ({ store: open(), tasks: { leaseMs: 600_000 } }))
    const { connect, route, instances } = fleet
    const client = await connect()
    route(0)
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tools/call', params: { name: 'ask' } })
    const { id } = await next(stream, 'elicitation/create')
    fleet.vanish(0)
    await stream.drop()
    route(1)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    // It comes back, and the answer reaches it: the call is no longer its own.
    fleet.appear(0)
    route(0)
    expect((await client.respond(id, ADA)).status).toBe(202)
    expect(await responseOf(resumed, 5)).toMatchObject({ result: { content: [{ text: 'Hello Ada' }] } })
    expect(instances.map(({ runs }) => runs())).toEqual([1, 1, 0])
  })

  it.each([
    ['while the task works', 'work'],
    ['while its question is open', 'asked'],
    ['after the answer', 'answered'],
  ])('J1 F1 a wait for tasks/result goes on elsewhere when its instance dies %s', async (_when, moment) => {
    const open = await share()
    let finish = (): void => {}
    const finished = new Promise<void>((resolve) => {
      finish = resolve
    })
    const fleet = await startFleet(3, () => ({
      store: open(),
      heartbeatMs: 40,
      tasks: { leaseMs: 600_000, concurrency: 4 },
    }))
    const { connect, route, instances } = fleet
    for (const { server } of instances)
      server.tool('order', { task: 'auto' }, async (_args, ctx) => {
        if (moment === 'work') await finished
        const { name } = await ctx.ask('name', { message: 'Name?', schema: z.object({ name: z.string() }) })
        if (moment === 'answered') await finished
        return `Bought for ${name}`
      })
    const client = await connect()
    const created = await client.call('tools/call', { name: 'order', task: { ttl: 60_000 } })
    const { taskId } = (created.result as { task: { taskId: string } }).task
    route(0)
    const stream = await client.post({ jsonrpc: '2.0', id: 5, method: 'tasks/result', params: { taskId } })
    let question: unknown
    if (moment !== 'work') question = (await next(stream, 'elicitation/create')).id
    if (moment === 'answered') {
      route(1)
      expect((await client.respond(question, ADA)).status).toBe(202)
    }
    // Its client has an event to resume from as soon as the stream begins.
    expect(stream.status).toBe(200)
    await until('an event id', async () => {
      if (stream.ids.length === 0) void stream.next().catch(() => {})
      return stream.ids.length > 0
    })
    fleet.vanish(0)
    await stream.drop()
    route(2)
    const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(resumed.status).toBe(200)
    finish()
    if (moment === 'work') question = (await next(resumed, 'elicitation/create')).id
    if (moment !== 'answered') {
      route(1)
      expect((await client.respond(question, ADA)).status).toBe(202)
    }
    expect(await responseOf(resumed, 5)).toMatchObject({
      result: { content: [{ text: 'Bought for Ada' }] },
    })
    const asked = [...stream.messages, ...resumed.messages].filter(
      ({ method }) => method === 'elicitation/create',
    )
    expect(asked).toHaveLength(1)
  })

  it('J1 a cancellation reaches the call on another instance', async () => {
    const open = await share()
    const { connect, route, instances } = await startFleet(2, () => ({ store: open() }))
    const client = await connect()
    route(0)
    const stream = await client.post({
      jsonrpc: '2.0',
      id: 5,
      method: 'tools/call',
      params: { name: 'wait' },
    })
    await next(stream, 'notifications/message')
    route(1)
    await client.notify('notifications/cancelled', { requestId: 5 })
    await instances[0]?.aborted
  })
}
