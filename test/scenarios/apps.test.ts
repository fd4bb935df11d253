/**
 * Questions that name an app (draft SEP-3118): sent to clients that declare it, a plain form for all others, and the same question
 * for both, under every carrier (R10).
 */

import { createGateway } from '@rondo/gateway'
import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { type ConnectOptions, connect, type FlowOptions } from 'rondo/client'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send, settled } from '../support/task-client.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const keys = generateKey()
const APP = 'ui://tables/seats'
const HTML = 'text/html;profile=mcp-app'
const schema = { type: 'object', properties: { seat: { type: 'string' } }, required: ['seat'] } as const

function tables(options: Partial<ServerOptions> = {}, ran: string[] = []): Server {
  const server = createServer({ name: 'tables', version: '1', keys, log: 'off', ...options })
  server.resource(APP, { name: 'seats', mimeType: HTML }, () => '<p>Seats</p>')
  server.tool('book', { task: 'auto', taskPollMs: 20 }, async (_args, ctx) => {
    const { seat } = await ctx.ask('seat', { message: 'Where?', schema, ui: APP })
    await ctx.effect('book', ({ key }) => void ran.push(key))
    return `Booked ${seat}, app: ${ctx.can('app')}.`
  })
  closing.push(() => server.close())
  return server
}

const pushes = { turns: false } as const
const asTask = { taskTtlMs: 60_000 }
const store = () => ({ store: createMemoryStore() })
const WAYS: [string, boolean, ConnectOptions, () => Partial<ServerOptions>, FlowOptions][] = [
  ['a token', true, { tasks: false }, () => ({}), {}],
  ['a task', true, { mode: '2026-07-28' }, store, {}],
  ['push', true, { mode: '2025-11-25' }, () => pushes, {}],
  ['push over 2025-06-18', true, { mode: '2025-06-18' }, () => pushes, {}],
  ['turns', true, { mode: '2025-11-25' }, () => ({}), {}],
  ['a task of 2025-11-25', true, { mode: '2025-11-25' }, () => ({ ...pushes, ...store() }), asTask],
  // Its requests declare no extensions.
  ['a token of DRAFT-2026-v1', false, { mode: 'DRAFT-2026-v1' }, () => ({}), {}],
]

it.each(WAYS)(
  'M6 R10 a question names its app under %s to a client that declares it, and to no other',
  async (_name, reaches, how, options, flow) => {
    const book = async (apps: boolean) => {
      const ran: string[] = []
      const randomId = () => 'the-same-in-every-carrier'
      const { url } = await tables({ ...options(), randomId }, ran).listen({ port: 0, signals: false })
      const seen: unknown[] = []
      const client = await connect(url, {
        ...how,
        answers: {
          apps,
          elicitation: {
            form: (params, { ui }) => {
              seen.push({ ui, meta: params._meta?.ui, properties: params.requestedSchema.properties })
              return { action: 'accept', content: { seat: 'inside' } }
            },
          },
        },
      })
      closing.push(() => client.close())
      const result = (await client.callTool('book', {}, flow)) as unknown as { content: { text: string }[] }
      return { seen, ran, text: result.content[0]?.text }
    }
    const { properties } = schema
    const plain = await book(false)
    expect(plain).toMatchObject({ text: 'Booked inside, app: false.', seen: [{ properties }] })
    expect(plain.seen).toEqual([{ ui: undefined, meta: undefined, properties }])
    const drawn = await book(true)
    expect(drawn.text).toBe(`Booked inside, app: ${reaches}.`)
    expect(drawn.seen).toEqual([
      { ui: reaches ? APP : undefined, meta: reaches ? { resourceUri: APP } : undefined, properties },
    ])
    expect(drawn.ran).toEqual(plain.ran)
    expect(drawn.ran).toHaveLength(1)
  },
)

const FORM = { elicitation: { form: {} } }
const declaring = (ui: object) => ({ ...FORM, extensions: { 'io.modelcontextprotocol/ui': ui } })
const DRAWS = declaring({ mimeTypes: [HTML], elicitation: {} })
const seat = { seat: { action: 'accept', content: { seat: 'inside' } } }
interface Asked {
  readonly requestState?: string
  readonly taskId?: string
  readonly inputRequests?: { readonly seat: { readonly params: { readonly _meta?: unknown } } }
}
const resultOf = async (
  server: Pick<Server, 'fetch'>,
  params: object,
  capabilities: object,
): Promise<Asked> =>
  (await send(server, 'tools/call', { name: 'book', arguments: {}, ...params }, { capabilities }))
    .result as Asked
const metaOf = ({ inputRequests }: Asked): unknown => inputRequests?.seat.params._meta

describe('an app that draws a form', () => {
  it.each<[string, object]>([
    ['nothing', FORM],
    ['apps beside results alone', declaring({ mimeTypes: [HTML] })],
    ['no type of app', declaring({ elicitation: {} })],
    ['another type of app', declaring({ mimeTypes: ['text/plain'], elicitation: {} })],
    ['something that is no object', declaring({ mimeTypes: HTML, elicitation: true })],
  ])('M6 is not named to a client that declares %s', async (_name, capabilities) => {
    const asked = await resultOf(tables(), {}, capabilities)
    expect(asked.inputRequests).toBeDefined()
    expect(metaOf(asked)).toBeUndefined()
  })

  it.each<[string, object]>([
    ['no questions', {}],
    ['links alone', { elicitation: { url: {} } }],
  ])('M6 is for no client that declares it, and %s', async (_name, others) => {
    const server = tables()
    server.tool('can', {}, (_args, ctx) => `app: ${ctx.can('app')}`)
    const can = async (capabilities: object) =>
      JSON.stringify(await resultOf(server, { name: 'can' }, capabilities))
    expect(await can({ extensions: DRAWS.extensions, ...others })).toContain('app: false')
    expect(await can(DRAWS)).toContain('app: true')
  })

  it.each([
    ['no longer declares it', DRAWS, FORM],
    ['declares it only then', FORM, DRAWS],
  ])('M6 R3 takes the answer of a client that %s', async (_name, first, second) => {
    const server = tables()
    const asked = await resultOf(server, {}, first)
    expect(metaOf(asked)).toEqual(first === DRAWS ? { ui: { resourceUri: APP } } : undefined)
    const { requestState } = asked
    const again = await resultOf(server, { requestState }, second)
    expect(metaOf(again)).toEqual(second === DRAWS ? { ui: { resourceUri: APP } } : undefined)
    for (const state of [requestState, again.requestState]) {
      const done = await resultOf(server, { requestState: state, inputResponses: seat }, second)
      expect(JSON.stringify(done)).toContain('Booked inside')
    }
  })

  it('M6 names it in a task to the requests that declare it, whoever began the task', async () => {
    const server = tables(store())
    const follows = { extensions: { 'io.modelcontextprotocol/tasks': {} } }
    const drawing = { ...DRAWS, extensions: { ...DRAWS.extensions, ...follows.extensions } }
    const { taskId } = await resultOf(server, {}, drawing)
    await settled(server, String(taskId))
    const seen = async (capabilities: object) =>
      metaOf((await send(server, 'tasks/get', { taskId }, { capabilities })).result as Asked)
    expect(await seen(drawing)).toEqual({ ui: { resourceUri: APP } })
    expect(await seen({ ...FORM, ...follows })).toBeUndefined()
    await send(
      server,
      'tasks/update',
      { taskId, inputResponses: seat },
      { capabilities: { ...FORM, ...follows } },
    )
    for (let i = 0; i < 2_000 && (await settled(server, String(taskId))).status !== 'completed'; i++)
      await new Promise((resolve) => setTimeout(resolve, 2))
    expect(JSON.stringify(await settled(server, String(taskId)))).toContain('Booked inside')
  })

  it('M6 R3 is part of the question: if a release names another one, the answer does not count', async () => {
    let ui: string | undefined = APP
    const bench = createBench((options) => {
      const server = createServer({ name: 'tables', version: '1', ...options })
      server.tool('book', {}, async (_args, ctx) => {
        const answer = await ctx.ask('seat', { message: 'Where?', schema, ui })
        return `Booked ${answer.seat}.`
      })
      return server
    })
    for (const other of ['ui://tables/other', undefined]) {
      ui = APP
      const call = bench.tool('book')
      await call.next()
      ui = other
      expect(await call.next({ seat: { seat: 'inside' } })).toMatchObject({ kind: 'input_required' })
      expect(await call.next({ seat: { seat: 'inside' } })).toMatchObject({ text: 'Booked inside.' })
    }
  })

  it.each<[string, unknown]>([
    ['another scheme', 'https://example.com/seats'],
    ['no scheme', 'seats'],
    ['no host', 'ui://'],
    ['a user', 'ui://ann@tables/seats'],
    ['a password', 'ui://:secret@tables/seats'],
    ['a blank', 'ui://tables/my seats'],
    ['a line break', 'ui://tables/seats\n'],
    ['other letters', 'ui://tables/sitzplätze'],
    ['a text that is too long', `ui://tables/${'x'.repeat(2_048)}`],
    ['a number', 7],
  ])('M6 refuses %s as its URI', async (_name, ui) => {
    const told: string[] = []
    const server = createServer({
      name: 'tables',
      version: '1',
      keys,
      log: (event) => 'error' in event && told.push(String(event.error)),
    })
    closing.push(() => server.close())
    server.tool(
      'book',
      {},
      (_args, ctx) => ctx.ask('seat', { message: 'Where?', schema, ui: ui as never }) as never,
    )
    expect(await resultOf(server, {}, DRAWS)).toMatchObject({ isError: true })
    expect(told.join()).toContain(
      "The ui of a question must be the URI of a resource that begins with ui:// and names a host, such as 'ui://tables/seats'",
    )
  })

  it('M6 is declared by a server that has a resource for it, in every era, and by no other', async () => {
    const without = createServer({ name: 'plain', version: '1', keys, log: 'off' })
    closing.push(() => without.close())
    without.tool('plain', {}, () => 'plain')
    for (const mode of ['2026-07-28', '2025-11-25'] as const)
      for (const server of [tables(), without]) {
        const { url } = await server.listen({ port: 0, signals: false })
        const client = await connect(url, { mode })
        closing.push(() => client.close())
        const { extensions } = client.server.capabilities as { extensions?: Record<string, unknown> }
        const declared = extensions?.['io.modelcontextprotocol/ui']
        expect(declared).toEqual(server === without ? undefined : { elicitation: {} })
      }
  })

  it('M6 is not declared by a client that speaks no drafts', async () => {
    await expect(connect(tables(), { drafts: false, answers: { apps: true } })).rejects.toThrow(
      'connect cannot declare answers.apps with drafts: false',
    )
  })

  it('M6 passes a gateway unchanged, to the clients that declare it', async () => {
    const { url } = await tables().listen({ port: 0, signals: false })
    const upstreams = { tables: { url } }
    const server = createGateway({ name: 'gateway', version: '1', upstreams, keys, log: 'off' })
    closing.push(() => server.close())
    await server.ready()
    const asked = await resultOf(server, { name: 'book' }, DRAWS)
    expect(metaOf(asked)).toEqual({ ui: { resourceUri: APP } })
    const plain = await resultOf(server, { name: 'book', requestState: asked.requestState }, FORM)
    expect(plain.inputRequests).toBeDefined()
    expect(metaOf(plain)).toBeUndefined()
    const answered = { name: 'book', requestState: plain.requestState, inputResponses: seat }
    expect(JSON.stringify(await resultOf(server, answered, FORM))).toContain('Booked inside')
  })

  it('M6 passes a gateway that follows a task for its caller, if the caller declares it', async () => {
    const server = createServer({ name: 'tables', version: '1', keys, log: 'off', ...store() })
    closing.push(() => server.close())
    server.tool('book', { task: 'always', taskPollMs: 20 }, async (_args, ctx) => {
      const answer = await ctx.ask('seat', { message: 'Where?', schema, ui: APP })
      return `Booked ${answer.seat}.`
    })
    const upstreams = { tables: { url: (await server.listen({ port: 0, signals: false })).url } }
    const gateway = createGateway({ name: 'gateway', version: '1', upstreams, keys, log: 'off' })
    closing.push(() => gateway.close())
    await gateway.ready()
    for (const capabilities of [DRAWS, FORM]) {
      const asked = await resultOf(gateway, {}, capabilities)
      expect(asked.inputRequests).toBeDefined()
      expect(metaOf(asked)).toEqual(capabilities === DRAWS ? { ui: { resourceUri: APP } } : undefined)
    }
  })

  it('M6 W4 passes a gateway only from the server whose resource the gateway serves under its URI', async () => {
    const upstreams: Record<string, { url: string }> = {}
    for (const name of ['tables', 'copies', 'names']) {
      const server = createServer({ name, version: '1', keys, log: 'off' })
      closing.push(() => server.close())
      if (name !== 'names') server.resource(APP, { name: 'seats', mimeType: HTML }, () => name)
      server.tool('book', {}, async (_args, ctx) => {
        const answer = await ctx.ask('seat', { message: 'Where?', schema, ui: APP })
        return `Booked ${answer.seat}.`
      })
      upstreams[name] = { url: (await server.listen({ port: 0, signals: false })).url }
    }
    const gateway = createGateway({ name: 'gateway', version: '1', upstreams, keys, log: 'off' })
    closing.push(() => gateway.close())
    await gateway.ready()
    const { result } = await send(gateway, 'resources/read', { uri: APP }, { capabilities: DRAWS })
    expect(result).toMatchObject({ contents: [{ text: 'tables' }] })
    const own = await resultOf(gateway, { name: 'tables_book' }, DRAWS)
    expect(metaOf(own)).toEqual({ ui: { resourceUri: APP } })
    for (const name of ['copies_book', 'names_book']) {
      const { inputRequests, requestState } = await resultOf(gateway, { name }, DRAWS)
      expect(inputRequests?.seat.params).toMatchObject({ requestedSchema: schema })
      expect(inputRequests?.seat.params._meta).toBeUndefined()
      const done = await resultOf(gateway, { name, requestState, inputResponses: seat }, DRAWS)
      expect(JSON.stringify(done)).toContain('Booked inside')
    }
  })
})
