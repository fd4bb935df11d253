/**
 * Tasks on an official server: as far as the package allows, and no further. Clients follow them by polling, through the
 * bytes of the wire.
 */

import {
  type CallToolResult,
  createMcpHandler,
  type InputRequiredResult,
  McpServer,
  type ServerContext,
  type StandardSchemaWithJSON,
} from '@modelcontextprotocol/server'
import { createRondo, type LogEvent, type Rondo, type RondoOptions } from 'rondo/sdk'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { createWorld, type Scenario, scenarios, type World } from '../scenarios/scenario.ts'
import { onOurServer } from '../support/our-server.ts'
import { FIXED_IDS } from '../support/sdk-server.ts'
import { follow, send, settled } from '../support/task-client.ts'

const KEYS = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const open: Rondo[] = []

afterEach(async () => {
  await Promise.all(open.splice(0).map((rondo) => rondo.close()))
})

function makeRondo(options: Partial<RondoOptions> = {}): Rondo {
  const store = createMemoryStore()
  const rondo = createRondo({ audience: 'tasks', keys: KEYS, log: 'off', store, ...FIXED_IDS, ...options })
  open.push(rondo)
  return rondo
}

type Register = (server: McpServer) => void
type Callback = (ctx: ServerContext) => Promise<CallToolResult | InputRequiredResult>

/** The tools that `register` declares, on a server with tasks; a new server is built for each request. */
function serve(rondo: Rondo, register: Register, prepare: (server: McpServer) => McpServer = rondo.tasks) {
  return createMcpHandler(() => {
    const server = prepare(new McpServer({ name: 'tasks', version: '1.0.0' }))
    register(server)
    return server
  })
}

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })

/** The tool of a scenario as a task: made once, registered on every server. */
function scenarioServer(scenario: Scenario, world: World, options: Partial<RondoOptions> = {}) {
  const rondo = makeRondo({ dev: true, ...options })
  const tools: Register[] = []
  const declare = {
    tool(
      name: string,
      { input }: { input?: StandardSchemaWithJSON },
      handler: (...p: unknown[]) => Promise<unknown>,
    ) {
      const callback = rondo.tool<unknown>(async (args, ctx) => text(String(await handler(args, ctx))), {
        task: 'auto',
      })
      tools.push((server) => server.registerTool(name, input ? { inputSchema: input } : {}, callback))
    },
  }
  scenario.declare(declare as never, world)
  return { rondo, ...serve(rondo, (server) => tools.forEach((register) => void register(server))) }
}

/** On an official server the manual form is its own: `sdk-by-hand.test.ts`. */
const asTasks = scenarios.filter(({ method, manual }) => method === 'tools/call' && !manual)

describe.each(asTasks)('as a task: $name', (scenario) => {
  it('R10 P20 has the same result and effect keys as rounds on our server', async () => {
    const world = createWorld()
    const server = scenarioServer(scenario, world)
    const created = await send(server, 'tools/call', { name: scenario.target, arguments: scenario.args })
    expect(created.result).toMatchObject({ resultType: 'task', status: 'working' })
    const ended = await follow(server, String(created.result?.taskId), scenario.script)
    expect(ended).toMatchObject({ status: 'completed', result: { content: [{ text: scenario.text }] } })
    const ours = await onOurServer(scenario)
    expect(world.effects).toEqual(ours.world.effects)
    expect((ended.result as { isError?: boolean }).isError ?? false).toBe(ours.isError)
  })
})

describe('a task', () => {
  const publish = scenarios.find(({ target }) => target === 'effects') as Scenario

  it('E9 continues in another process, which reads it from the store', async () => {
    const store = createMemoryStore()
    const world = createWorld()
    const first = scenarioServer(publish, world, { store })
    const created = await send(first, 'tools/call', { name: publish.target })
    const taskId = String(created.result?.taskId)
    expect(await settled(first, taskId)).toMatchObject({ status: 'input_required' })
    await first.rondo.close()
    const second = scenarioServer(publish, world, { store })
    expect(await follow(second, taskId, publish.script)).toMatchObject({ status: 'completed' })
    expect(world.effects.map(({ name }) => name)).toEqual(publish.effects)
  })

  it('D8 can be cancelled by its owner, and is unknown to others', async () => {
    const rondo = makeRondo({
      principal: ({ http }) => ({ subject: http?.req?.headers.get('x-user') ?? '?' }),
    })
    const wait = rondo.tool(async (_args, ctx) => text(String(await ctx.confirm('sure', 'Sure?'))), {
      task: 'always',
    })
    const server = serve(rondo, (mcp) => mcp.registerTool('wait', {}, wait))
    const as = (user: string) => ({ headers: { 'x-user': user } })
    const created = await send(server, 'tools/call', { name: 'wait' }, as('alice'))
    const taskId = String(created.result?.taskId)
    for (const action of ['get', 'update', 'cancel']) {
      const foreign = await send(server, `tasks/${action}`, { taskId, inputResponses: {} }, as('eve'))
      expect(foreign.error).toMatchObject({ code: -32602, message: 'Task not found' })
    }
    expect((await send(server, 'tasks/cancel', { taskId }, as('alice'))).error).toBeUndefined()
    const ended = await send(server, 'tasks/get', { taskId }, as('alice'))
    expect(ended.result).toMatchObject({ status: 'cancelled' })
  })

  it('E1 E3 E5 is refused for clients without the capability, and for malformed requests', async () => {
    const rondo = makeRondo()
    const wait = rondo.tool(async (_args, ctx) => text(String(await ctx.confirm('sure', 'Sure?'))), {
      task: 'always',
    })
    const server = serve(rondo, (mcp) => mcp.registerTool('wait', {}, wait))
    const created = await send(server, 'tools/call', { name: 'wait' })
    const params = { taskId: String(created.result?.taskId), inputResponses: {} }
    for (const action of ['get', 'update', 'cancel']) {
      const plain = { capabilities: { elicitation: {} } }
      expect((await send(server, `tasks/${action}`, params, plain)).error).toMatchObject({
        code: -32021,
        data: { requiredCapabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } } },
      })
      const misnamed = { headers: { 'mcp-name': 'another' } }
      expect((await send(server, `tasks/${action}`, params, misnamed)).error?.code).toBe(-32020)
    }
    const { taskId } = params
    expect((await send(server, 'tasks/update', { taskId })).error?.code).toBe(-32602)
    expect(await settled(server, taskId)).toMatchObject({ status: 'input_required' })
  })

  it('runs a handler that calls ctx.background() as a task from its first request on', async () => {
    const rondo = makeRondo()
    const steps: string[] = []
    const report = rondo.tool(
      async (_args, ctx) => {
        await ctx.step('begin', () => void steps.push('begin'))
        await ctx.background()
        await ctx.step('go on', () => void steps.push('go on'))
        return text('done')
      },
      { task: 'auto' },
    )
    const server = serve(rondo, (mcp) => mcp.registerTool('report', {}, report))
    const created = await send(server, 'tools/call', { name: 'report' })
    expect(created.result).toMatchObject({ resultType: 'task' })
    expect(created.result).not.toHaveProperty('content')
    expect(await settled(server, String(created.result?.taskId))).toMatchObject({ status: 'completed' })
    expect(steps).toEqual(['begin', 'go on'])
  })

  it('checks arguments and results with the schemas of the registration', async () => {
    const rondo = makeRondo()
    const config = {
      inputSchema: z.object({ n: z.string().transform(Number) }),
      outputSchema: z.object({ twice: z.number() }),
    }
    const twice = rondo.tool<{ n: number }>(
      ({ n }) => ({ content: [], structuredContent: n === 3 ? { wrong: n } : { twice: 2 * n } }),
      { task: 'auto' },
    )
    const server = serve(rondo, (mcp) => mcp.registerTool('twice', config, twice))
    const run = async (n: string) => {
      const created = await send(server, 'tools/call', { name: 'twice', arguments: { n } })
      expect(created.result).toMatchObject({ resultType: 'task' })
      return (await settled(server, String(created.result?.taskId))).result
    }
    expect(await run('2')).toMatchObject({ structuredContent: { twice: 4 } })
    expect(await run('3')).toMatchObject({ isError: true })
  })

  it('has no official context, and an error says so', async () => {
    const events: unknown[] = []
    const rondo = makeRondo({ log: (event) => void events.push(event) })
    const look = rondo.tool((_args, ctx) => text(ctx.sdk.mcpReq.method), { task: 'auto' })
    const server = serve(rondo, (mcp) => mcp.registerTool('look', {}, look))
    const created = await send(server, 'tools/call', { name: 'look' })
    const ended = await settled(server, String(created.result?.taskId))
    expect(ended.result).toMatchObject({ isError: true })
    expect(events).toContainEqual(expect.objectContaining({ event: 'fault', error: expect.any(TypeError) }))
  })
})

describe('an official server with tasks', () => {
  const capabilitiesOf = async (server: ReturnType<typeof serve>) =>
    (await send(server, 'server/discover', {})).result?.capabilities

  it('declares tasks if they are configured', async () => {
    const rondo = makeRondo()
    const extensions = { 'io.modelcontextprotocol/tasks': {} }
    expect(await capabilitiesOf(serve(rondo, () => {}))).toMatchObject({ extensions })
    expect(await capabilitiesOf(serve(rondo, () => {}, rondo.mount))).not.toHaveProperty('extensions')
  })

  it('without tasks runs the same tool in rounds, and refuses one that must be a task', async () => {
    const rondo = makeRondo()
    const handler = (task: 'auto' | 'always') => rondo.tool(() => text('at once'), { task })
    const [auto, always] = [handler('auto'), handler('always')]
    const register: Register = (mcp) => {
      mcp.registerTool('auto', {}, auto)
      mcp.registerTool('always', {}, always)
    }
    const [with_, without] = [serve(rondo, register), serve(rondo, register, rondo.mount)]
    expect((await send(with_, 'tools/call', { name: 'auto' })).result?.resultType).toBe('task')
    expect((await send(without, 'tools/call', { name: 'auto' })).result).toMatchObject(text('at once'))
    expect((await send(without, 'tools/call', { name: 'always' })).error).toMatchObject({ code: -32021 })
    expect((await send(without, 'tasks/get', { taskId: 'x' })).error).toMatchObject({ code: -32601 })
  })

  it.each<[string, (rondo: Rondo) => Rondo['tasks'], (callback: Callback) => Callback]>([
    ['it was only mounted', (rondo) => rondo.mount, (callback) => callback],
    ['the callback is wrapped', (rondo) => rondo.tasks, (callback) => (ctx) => callback(ctx)],
  ])('logs once that a tool cannot become a task, because %s', async (_why, prepare, wrapped) => {
    const events: LogEvent[] = []
    const rondo = makeRondo({ log: (event) => void events.push(event) })
    const callback = rondo.tool(() => text('at once'), { task: 'auto' })
    const server = serve(rondo, (mcp) => mcp.registerTool('auto', {}, wrapped(callback)), prepare(rondo))
    for (let i = 0; i < 2; i++) {
      expect((await send(server, 'tools/call', { name: 'auto' })).result).toMatchObject(text('at once'))
    }
    expect(events.filter(({ event }) => event === 'warning')).toMatchObject([
      { message: expect.stringMatching(/"auto" .* rounds only.* rondo\.tasks/) },
    ])
  })

  it('refuses a tool that was created for one request and could outlive it, and logs what to do', async () => {
    const events: LogEvent[] = []
    const rondo = makeRondo({ log: (event) => void events.push(event) })
    const server = serve(rondo, (mcp) =>
      mcp.registerTool(
        'closure',
        {},
        rondo.tool(() => text(''), { task: 'auto' }),
      ),
    )
    expect((await send(server, 'tools/list', {})).error).toBeUndefined()
    expect((await send(server, 'tools/list', {})).error).toMatchObject({ code: -32603 })
    expect(events).toMatchObject([
      {
        event: 'warning',
        error: {
          message: expect.stringMatching(/"closure" .* once, outside of the function that builds servers/),
        },
      },
    ])
  })

  it('runs a tool without the option task in rounds, from the first server on', async () => {
    const rondo = makeRondo()
    const server = serve(rondo, (mcp) =>
      mcp.registerTool(
        'closure',
        {},
        rondo.tool(async (_args, ctx) => {
          await ctx.background()
          return text('done')
        }),
      ),
    )
    // The first server too: a worker elsewhere would run what it closes over for another caller.
    for (let call = 1; call <= 2; call++) {
      const { result } = await send(server, 'tools/call', { name: 'closure', arguments: {} })
      expect(result).toMatchObject({ content: [{ type: 'text', text: 'done' }] })
    }
  })

  it('needs a store for tasks and for single use', () => {
    const rondo = makeRondo({ store: undefined })
    expect(() => rondo.tasks(new McpServer({ name: 'tasks', version: '1.0.0' }))).toThrow(/need a store/)
    expect(() => rondo.tool(() => text(''), { task: 'auto' })).toThrow(/"task" needs a store/)
    expect(() => rondo.tool(() => text(''), { once: true })).toThrow(/"once" needs a store/)
  })
})
