/**
 * `state` for a client that takes no turns, the main flow of its draft (F2): the question arrives on the open stream of
 * its call with a sealed state, and any instance accepts the response.
 */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it, onTestFinished } from 'vitest'
import { type WorkItem, workItems } from '../../examples/08-custom-rules.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder, type Message, type OlderClient, type OpenStream } from '../support/older-client.ts'
import { accept, keys, make as makeWire, URL, value } from '../support/turns-wire.ts'

const STATE = { elicitation: {}, experimental: { 'request-state': {} } }

function make(options: Partial<ServerOptions> = {}): Server {
  const server = makeWire({ sessions: {}, ...options })
  onTestFinished(() => server.close())
  return server
}

/** A fleet, and a client whose requests reach the instance that `at` names. */
async function fleet(
  servers: readonly Server[],
  capabilities: Message = STATE,
): Promise<{ client: OlderClient; at(index: number): OlderClient }> {
  let index = 0
  const client = await connectOlder(URL, { capabilities }, (request) =>
    (servers[index] as Server).fetch(request),
  )
  return {
    client,
    at(next) {
      index = next
      return client
    },
  }
}

const callOf = (name: string, args: Message = {}, id: string | number = 'c'): Message => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name, arguments: args },
})

const echo = ({ id, state }: Message, content: Message): Message => ({
  jsonrpc: '2.0',
  id,
  state,
  result: accept(content),
})

async function question(stream: OpenStream): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (message.method !== undefined && message.id !== undefined) return message
  }
  throw new Error('The server asked nothing')
}

const textOf = (message: Message | undefined): unknown =>
  (message?.result as { content: { text: string }[] } | undefined)?.content[0]?.text

describe('a state without turns', () => {
  it('F2 is declared back, in a session that any instance knows and that has every other feature', async () => {
    const { client } = await fleet([make()])
    expect(client.initialized.result).toMatchObject({
      capabilities: { tools: { listChanged: true }, logging: {}, experimental: { 'request-state': {} } },
    })
  })

  it('F2 travels with the question, and the response reaches the waiting call', async () => {
    const { client } = await fleet([make()])
    const stream = await client.post(callOf('ask'))
    const asked = await question(stream)
    expect(asked).toMatchObject({ method: 'elicitation/create', state: expect.stringMatching(/^r1\./) })
    expect((await client.post(echo(asked, { value: 'Ada' }))).status).toBe(202)
    expect(textOf(await stream.next())).toBe('Hello Ada')
    expect(await stream.next()).toBeUndefined()
  })

  it('F2 lets another instance accept the response: the reply to that POST is the result of the call', async () => {
    const { at } = await fleet([make(), make()])
    const stream = await at(0).post(callOf('ask'))
    const asked = await question(stream)
    const answered = await at(1).post(echo(asked, { value: 'Ada' }))
    expect(answered.status).toBe(200)
    expect(await answered.next()).toMatchObject({ id: 'c', result: { content: [{ text: 'Hello Ada' }] } })
    await stream.drop()
  })

  it('F2 B21 plays the tracker with custom rules, each response on another instance', async () => {
    const items = new Map<number, WorkItem>()
    const servers = [0, 1, 2].map(() => {
      const server = workItems(items, { keys, log: 'off', sessions: {} })
      onTestFinished(() => server.close())
      return server
    })
    const { at } = await fleet(servers)
    const args = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }
    const first = await question(await at(0).post(callOf('update_work_item', args)))
    const second = await question(await at(1).post(echo(first, { resolution: 'Duplicate' })))
    expect(second).toMatchObject({
      params: { message: 'Since this is a duplicate, which work item is the original?' },
    })
    const ended = await at(2).post(echo(second, { duplicateOfId: 4301 }))
    const text =
      'Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created.'
    expect(textOf(await ended.next())).toBe(text)
    expect(items.get(4522)).toMatchObject({})
  })

  it('F2 R10 sends several questions one after the other, so that no two instances continue one round', async () => {
    const { at } = await fleet([make(), make(), make()])
    const left = await question(await at(0).post(callOf('both')))
    expect(left.params).toMatchObject({ message: 'Left?' })
    const right = await question(await at(1).post(echo(left, { value: 'L' })))
    expect(right.params).toMatchObject({ message: 'Right?' })
    expect(textOf(await (await at(2).post(echo(right, { value: 'R' }))).next())).toBe('LR')
  })

  it('F3 travels as an object if the server is configured so', async () => {
    const options = { turns: { form: 'object' } } as const
    const { at } = await fleet([make(options), make(options)])
    const asked = await question(await at(0).post(callOf('ask')))
    expect(asked.state).toEqual({ sealed: expect.any(String) })
    expect(textOf(await (await at(1).post(echo(asked, { value: 'Ada' }))).next())).toBe('Hello Ada')
  })

  it('F2 lets another instance continue the progress where it stopped', async () => {
    const { at } = await fleet([make(), make()])
    const request = callOf('counts')
    const params = { ...(request.params as object), _meta: { progressToken: 'p' } }
    const first = await at(0).post({ ...request, params })
    const asked = await question(first)
    const rest = await at(1).post(echo(asked, { value: 'yes' }))
    while (await rest.next()) expect(rest.messages.length).toBeLessThan(10)
    const told = [...first.messages, ...rest.messages]
      .filter(({ method }) => method === 'notifications/progress')
      .map(({ params: given }) => (given as { progress: number }).progress)
    expect(told).toEqual([1, 2, 3])
  })

  it('R7 keeps the effect keys when the response arrives twice, at one instance or at two', async () => {
    const used: string[] = []
    const server = () => {
      const made = make()
      made.tool('pay', {}, async (_args, ctx) => {
        await ctx.ask('sum', { message: 'Sum?', schema: value })
        await ctx.effect('pay', ({ key }) => void used.push(key))
        return 'paid'
      })
      return made
    }
    const { at } = await fleet([server(), server(), server()])
    const stream = await at(0).post(callOf('pay'))
    const asked = await question(stream)
    for (const index of [1, 1, 2]) {
      expect(textOf(await (await at(index).post(echo(asked, { value: '1' }))).next())).toBe('paid')
    }
    expect(used).toHaveLength(3)
    expect(new Set(used).size).toBe(1)
  })

  it('F2 acknowledges a repeated response to a waiting call: a lost 202 starts nothing again', async () => {
    let release = (): void => {}
    let runs = 0
    const server = make({ dev: false })
    server.tool('slow', {}, async (_args, ctx) => {
      await ctx.ask('go', { message: 'Go?', schema: value })
      runs += 1
      await new Promise<void>((resolve) => {
        release = resolve
      })
      return 'done'
    })
    const { client } = await fleet([server])
    const stream = await client.post(callOf('slow'))
    const asked = await question(stream)
    for (let i = 0; i < 2; i++) expect((await client.post(echo(asked, { value: 'x' }))).status).toBe(202)
    await expect.poll(() => runs).toBe(1)
    release()
    expect(textOf(await stream.next())).toBe('done')
  })

  it('F2 outlives the process that asked: other instances accept the responses', async () => {
    const leaving = make()
    const { at } = await fleet([leaving, make()])
    const stream = await at(0).post(callOf('ask'))
    const asked = await question(stream)
    await leaving.close()
    expect(await stream.next()).toBeUndefined()
    expect(textOf(await (await at(1).post(echo(asked, { value: 'Ada' }))).next())).toBe('Hello Ada')
  })

  it('F2 lets a client resume its stream at another instance, which sends the rest there', async () => {
    const leaving = make()
    const { at } = await fleet([leaving, make()])
    const stream = await at(0).post(callOf('ask'))
    const asked = await question(stream)
    await leaving.close()
    expect(await stream.next()).toBeUndefined()
    const rest = await at(1).get({ 'last-event-id': stream.ids.at(-1) ?? '' })
    expect(rest.status).toBe(200)
    const wrong = await at(1).post(echo({ ...asked, state: 'r1.x' }, { value: 'Eve' }))
    expect(await wrong.next()).toMatchObject({ error: { code: -32602 } })
    expect((await at(1).post(echo(asked, { value: 'Ada' }))).status).toBe(202)
    expect(textOf(await rest.next())).toBe('Hello Ada')
    expect(await rest.next()).toBeUndefined()
  })

  it('F2 is not needed if a client does not echo: the instance that asked accepts the response', async () => {
    const { client } = await fleet([make()])
    const stream = await client.post(callOf('ask'))
    const { id } = await question(stream)
    expect((await client.respond(id, accept({ value: 'Ada' }))).status).toBe(202)
    expect(textOf(await stream.next())).toBe('Hello Ada')
  })

  it.each(['stored', 'dual', 'sealed-first'] as const)(
    'F2 F4 finds the question in the store, with continuation %s, if its state is not echoed',
    async (continuation) => {
      const options = { continuation, store: createMemoryStore() }
      const { at } = await fleet([make(options), make(options)])
      const { id } = await question(await at(0).post(callOf('ask')))
      const answered = await at(1).post({ jsonrpc: '2.0', id, result: accept({ value: 'Ada' }) })
      expect(textOf(await answered.next())).toBe('Hello Ada')
    },
  )

  it('B4 is refused if it belongs to another question, even where the call waits', async () => {
    const { at } = await fleet([make(), make()])
    const [first, second] = [await at(0).post(callOf('ask', {}, 1)), await at(0).post(callOf('ask', {}, 2))]
    const [one, two] = [await question(first), await question(second)]
    const crossed = echo({ id: one.id, state: two.state }, { value: 'Eve' })
    const refused = { error: { code: -32602, message: 'Invalid or expired requestState' } }
    expect(await (await at(0).post(crossed)).next()).toMatchObject(refused)
    expect(await (await at(1).post(crossed)).next()).toMatchObject(refused)
    expect(await (await at(1).post(echo({ ...one, state: `${one.state}A` }, {}))).next()).toMatchObject(
      refused,
    )
    await at(0).post(echo(one, { value: 'Ada' }))
    expect(textOf(await first.next())).toBe('Hello Ada')
    await second.drop()
  })

  it('B5 T1 is refused for another principal, and so is the session', async () => {
    const options: Partial<ServerOptions> = {
      authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'nobody' }),
    }
    const servers = [make(options), make(options)]
    const as = (user: string) =>
      connectOlder(URL, { capabilities: STATE, headers: { 'x-user': user } }, (request) =>
        (servers[user === 'ada' ? 0 : 1] as Server).fetch(request),
      )
    const [ada, eve] = [await as('ada'), await as('eve')]
    const asked = await question(await ada.post(callOf('ask')))
    const stolen = await eve.post(echo(asked, { value: 'Eve' }))
    expect(await stolen.next()).toMatchObject({ error: { code: -32602 } })
    const inHerSession = { 'mcp-session-id': ada.sessionId ?? '' }
    expect((await eve.post(echo(asked, { value: 'Eve' }), inHerSession)).status).toBe(404)
    expect((await eve.get(inHerSession)).status).toBe(404)
  })

  it('B8 is omitted for a tool of single use', async () => {
    const server = make({ store: createMemoryStore() })
    server.tool('once', { once: true }, async (_args, ctx) => {
      const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
      return name
    })
    const { client } = await fleet([server])
    const stream = await client.post(callOf('once'))
    const asked = await question(stream)
    expect(asked).not.toHaveProperty('state')
    await client.respond(asked.id, accept({ value: 'Ada' }))
    expect(textOf(await stream.next())).toBe('Ada')
  })

  it('F5 is not sent to a client that declared nothing', async () => {
    const { client } = await fleet([make()], { elicitation: {} })
    expect(await question(await client.post(callOf('ask')))).not.toHaveProperty('state')
    expect(client.initialized.result).not.toHaveProperty('capabilities.experimental')
  })
})

describe("the state of a task's question", () => {
  it('F2 lets any instance accept the response', async () => {
    const store = createMemoryStore()
    const server = () => {
      const made = createServer({
        name: 'wire',
        version: '1',
        keys,
        dev: true,
        log: 'off',
        sessions: {},
        store,
      })
      onTestFinished(() => made.close())
      made.tool('late', { task: 'always' }, async (_args, ctx) => {
        const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
        return `Hello ${name}`
      })
      return made
    }
    const { at } = await fleet([server(), server()])
    const request = callOf('late')
    const params = { ...(request.params as object), task: { ttl: 60_000 } }
    const created: unknown = await (await at(0).post({ ...request, params })).next()
    const { taskId } = (created as { result: { task: { taskId: string } } }).result.task
    const waiting = await at(0).post({ jsonrpc: '2.0', id: 'r', method: 'tasks/result', params: { taskId } })
    const asked = await question(waiting)
    expect(asked).toMatchObject({ state: expect.any(String) })
    expect((await at(1).post(echo(asked, { value: 'Ada' }))).status).toBe(202)
    for (let message = await waiting.next(); message; message = await waiting.next()) {
      if (message.id === 'r') return expect(textOf(message)).toBe('Hello Ada')
    }
    throw new Error('no result')
  })
})
