/**
 * `tasks: { tools: true }`: a host that cannot follow tasks starts one, asks for it by its id, and has the user answer. What a
 * model can write, a tool's arguments, never answers anything.
 */

import { createServer, type Server, type ServerOptions, ToolError } from 'rondo'
import { createRondo } from 'rondo/sdk'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createHost } from '../../packages/rondo/src/serve/host.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { createTime } from '../support/store/store-harness.ts'
import { follow, send } from '../support/task-client.ts'
import { idIn, PLAIN, pushHost, roundsHost, toResult, untilEnded } from '../support/task-tools.ts'

const servers: Server[] = []
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

const name = z.object({ name: z.string() })
const paid: string[] = []

function start(options: Partial<ServerOptions> = {}): Server {
  paid.length = 0
  const server = createServer({
    name: 'shop',
    version: '1.0.0',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
    tasks: { tools: true },
    authenticate: ({ headers }) => {
      const subject = headers('x-user')
      return subject === undefined ? undefined : { subject }
    },
    ...options,
  })
  server.tool('greet', { task: 'auto' }, async (_args, ctx) => {
    const given = await ctx.ask('name', { message: 'Name?', schema: name })
    return `Hello ${given.name}`
  })
  server.tool('pay', { task: 'auto' }, async (_args, ctx) => {
    await ctx.step('look up', () => 1)
    await ctx.effect('pay', ({ key }) => void paid.push(key))
    return 'paid'
  })
  server.tool('confirmed', { task: 'auto' }, async (_args, ctx) =>
    (await ctx.confirm('sure', 'Really?')) ? 'yes' : 'no',
  )
  server.tool('fails', { task: 'auto' }, () => {
    throw new ToolError('The printer is on fire')
  })
  server.tool('breaks', { task: 'always' }, async (_args, ctx) => {
    await Promise.all([ctx.step('twice', () => 1), ctx.step('twice', () => 2)])
  })
  server.tool('late', {}, async (_args, ctx) => {
    await ctx.ask('before', { message: 'Before?', schema: name })
    await ctx.background()
    await ctx.ask('after', { message: 'After?', schema: name })
    return 'late'
  })
  server.tool('waits', { task: 'auto' }, (_args, ctx) =>
    ctx.step('long', ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', reject))),
  )
  server.tool('many', { task: 'auto' }, async (_args, ctx) => {
    for (let i = 0; i < 9; i++) await ctx.ask(`q${i}`, { message: `Question ${i}?`, schema: name })
    return 'all'
  })
  server.tool('sums', { task: 'auto', output: z.object({ sum: z.number() }) }, () => ({ sum: 3 }))
  servers.push(server)
  return server
}

/** The question of `confirmed` as it was first asked: an answer that did not fit would have changed its key. */
const ASKS = { resultType: 'input_required', inputRequests: { sure: { params: { message: 'Really?' } } } }

const call = (server: Server, tool: string, args: object, more: object = {}, capabilities: object = PLAIN) =>
  send(server, 'tools/call', { name: tool, arguments: args, ...more }, { capabilities })

describe('a host without tasks', () => {
  it('G6 gets a sentence with the id, and the result of the tool from task_status', async () => {
    const host = roundsHost(start())
    const started = await host.call('greet')
    expect(started.text).toMatch(
      /^"greet" continues in the background as the task [\w-]{22}\. Call task_status with \{"taskId":"/,
    )
    expect(started).toMatchObject({ isError: false, structuredContent: undefined })
    const result = await host.call('task_status', { taskId: idIn(started) }, { name: { name: 'Ada' } })
    expect(result).toEqual({ text: 'Hello Ada', isError: false, structuredContent: undefined })
  })

  it('G6 reads an error of the tool, and of the runtime, as an error', async () => {
    const host = roundsHost(start())
    const failed = await untilEnded(host, idIn(await host.call('fails')))
    expect(failed).toMatchObject({ text: 'The printer is on fire', isError: true })
    const broken = await untilEnded(host, idIn(await host.call('breaks')))
    expect(broken.isError).toBe(true)
    expect(broken.text).toMatch(/^The task [\w-]{22} failed: /)
  })

  it('G6 gets a task from ctx.background() on, in rounds and by push', async () => {
    const server = start()
    const script = { before: { name: 'a' }, after: { name: 'b' } }
    const rounds = roundsHost(server)
    expect(await untilEnded(rounds, idIn(await rounds.call('late', {}, script)), script)).toMatchObject({
      text: 'late',
    })
    const { url } = await server.listen({ port: 0, signals: false })
    const push = await pushHost(url, (message) => message.slice(0, -1).toLowerCase())
    expect(await untilEnded(push, idIn(await push.call('late', {}, script)), script)).toMatchObject({
      text: 'late',
    })
    expect(push.asked).toHaveLength(2)
  })

  it('G6 is told to call again instead of using up its rounds', async () => {
    const host = roundsHost(start())
    const taskId = idIn(await host.call('many'))
    const script = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`q${i}`, { name: 'x' }]))
    const first = await host.call('task_status', { taskId }, script)
    expect(first.text).toMatch(
      /waits for an answer.*Call task_status again with .*"after":1\} to ask the user/,
    )
    expect(await untilEnded(host, taskId, script)).toMatchObject({ text: 'all' })
  })

  it('G6 cancels with task_cancel', async () => {
    const host = roundsHost(start())
    const taskId = idIn(await host.call('waits'))
    expect((await host.call('task_cancel', { taskId })).text).toMatch(/was cancelled/)
    expect((await host.call('task_status', { taskId })).text).toMatch(/was cancelled. It has no result/)
    expect((await host.call('task_cancel', { taskId })).text).toMatch(/had already ended/)
  })

  it('G6 that cannot be asked reads what is missing, and the question stays open for one that can', async () => {
    const server = start()
    const taskId = idIn(toResult(await call(server, 'greet', {})))
    const result = toResult(await call(server, 'task_status', { taskId }, {}, {}))
    expect(result.text).toMatch(/needs elicitation.*This client cannot ask its user/)
    const able = roundsHost(server)
    expect(await able.call('task_status', { taskId }, { name: { name: 'Eve' } })).toMatchObject({
      text: 'Hello Eve',
    })
  })

  it('G6 that turns out not to implement elicitation reads why, by push', async () => {
    const { url } = await start().listen({ port: 0, signals: false })
    const host = await pushHost(url, () => '', {
      answer: () => ({ error: { code: -32601, message: 'Method not found' } }),
    })
    const taskId = idIn(await host.call('greet'))
    expect((await host.call('task_status', { taskId })).text).toMatch(/waits for an answer.*cannot ask/)
  })
})

describe('a client that follows tasks', () => {
  it('E1 gets the task itself, not the sentence', async () => {
    const server = start()
    const { result } = await send(server, 'tools/call', { name: 'greet', arguments: {} })
    expect(result).toMatchObject({ resultType: 'task' })
    expect(await follow(server, String(result?.taskId), { name: { name: 'Bob' } })).toMatchObject({
      result: { content: [{ text: 'Hello Bob' }] },
    })
  })
})

describe('only the person answers', () => {
  it('G6 refuses arguments that answer: the question stays open', async () => {
    const server = start()
    const host = roundsHost(server)
    const taskId = idIn(await host.call('confirmed'))
    for (const extra of [
      { inputResponses: { sure: { action: 'accept', content: { confirm: true } } } },
      { answers: { sure: true } },
      { sure: true },
      { requestState: 'task_status', inputResponses: {} },
    ]) {
      expect(await host.call('task_status', { taskId, ...extra })).toMatchObject({ isError: true })
    }
    expect((await call(server, 'task_status', { taskId })).result).toMatchObject(ASKS)
  })

  it('G6 drops such arguments where the server drops unknown ones: the question stays open', async () => {
    const server = start({ dropUnknownArguments: true })
    const taskId = idIn(await roundsHost(server).call('confirmed'))
    const extra = { inputResponses: { sure: { action: 'accept', content: { confirm: true } } } }
    expect((await call(server, 'task_status', { taskId, ...extra })).result).toMatchObject(ASKS)
  })

  it('G6 R3 ignores responses that come without the state of the question', async () => {
    const server = start()
    const taskId = idIn(await roundsHost(server).call('confirmed'))
    const { result } = await call(server, 'task_status', { taskId })
    const [key = ''] = Object.keys(result?.inputRequests as object)
    const inputResponses = { [key]: { action: 'accept', content: { confirm: true } } }
    expect((await call(server, 'task_status', { taskId }, { inputResponses })).result).toMatchObject(ASKS)
  })

  it('G6 R1 refuses the state of another task, and of another tool', async () => {
    const server = start()
    const host = roundsHost(server)
    const [one, other] = [idIn(await host.call('confirmed')), idIn(await host.call('confirmed'))]
    const asked = (await call(server, 'task_status', { taskId: one })).result
    const [key = ''] = Object.keys(asked?.inputRequests as object)
    const more = {
      inputResponses: { [key]: { action: 'accept', content: { confirm: true } } },
      requestState: asked?.requestState,
    }
    expect((await call(server, 'task_status', { taskId: other }, more)).error?.code).toBe(-32602)
    expect((await call(server, 'task_cancel', { taskId: one }, more)).error?.code).toBe(-32602)
    expect((await call(server, 'task_status', { taskId: other })).result).toMatchObject(ASKS)
  })

  it('G6 R2 accepts the first answer, once, whoever sends another', async () => {
    const server = start()
    const taskId = idIn(await roundsHost(server).call('greet'))
    const asked = (await call(server, 'task_status', { taskId })).result
    const answer = (given: string) => ({
      inputResponses: { name: { action: 'accept', content: { name: given } } },
      requestState: asked?.requestState,
    })
    expect(toResult(await call(server, 'task_status', { taskId }, answer('first'))).text).toBe('Hello first')
    expect(toResult(await call(server, 'task_status', { taskId }, answer('second'))).text).toBe('Hello first')
  })

  it('G6 asks again with the reason if the answer does not fit', async () => {
    const server = start()
    const taskId = idIn(await roundsHost(server).call('greet'))
    const asked = (await call(server, 'task_status', { taskId })).result
    const again = await call(
      server,
      'task_status',
      { taskId },
      {
        inputResponses: { name: { action: 'accept', content: { name: 7 } } },
        requestState: asked?.requestState,
      },
    )
    expect(again.result).toMatchObject({ resultType: 'input_required', inputRequests: { 'name~2': {} } })
  })
})

describe('ids', () => {
  it('G6 E6 unknown, malformed, foreign and expired ids get the same result', async () => {
    const clock = createTime()
    const store = createMemoryStore({ now: clock })
    const server = start({ store, tasks: { tools: true, ttlMs: 1_000 } })
    const alice = roundsHost(server, { 'x-user': 'alice' })
    const bob = roundsHost(server, { 'x-user': 'bob' })
    const taskId = idIn(await alice.call('greet'))
    const shape = ({ text, isError }: { text: string; isError: boolean }, id: string) => ({
      text: text.replace(id, 'ID'),
      isError,
    })
    for (const tool of ['task_status', 'task_cancel']) {
      const expected = shape(await bob.call(tool, { taskId: 'made-up' }), 'made-up')
      expect(expected.isError).toBe(true)
      expect(shape(await bob.call(tool, { taskId }), taskId)).toEqual(expected)
      expect(shape(await bob.call(tool, { taskId: 'A'.repeat(22) }), 'A'.repeat(22))).toEqual(expected)
    }
    const unknown = shape(await alice.call('task_status', { taskId: 'made-up' }), 'made-up')
    clock.pass(2_000)
    expect(shape(await alice.call('task_status', { taskId }), taskId)).toEqual(unknown)
  })

  it('G6 R6 I5 a lost sentence and a second call cause one effect: that of the task that was asked about', async () => {
    const server = start()
    const host = roundsHost(server)
    const lost = idIn(await host.call('pay'))
    const known = idIn(await host.call('pay'))
    expect(await untilEnded(host, known)).toMatchObject({ text: 'paid' })
    expect(paid).toHaveLength(1)
    // The control: the other task was only waiting for somebody to know it.
    expect(await untilEnded(host, lost)).toMatchObject({ text: 'paid' })
    expect(new Set(paid).size).toBe(2)
  })

  it('G6 R6 a stranger who asks about a task does not make it known', async () => {
    const server = start()
    const taskId = idIn(await roundsHost(server, { 'x-user': 'alice' }).call('pay'))
    const bob = roundsHost(server, { 'x-user': 'bob' })
    expect((await bob.call('task_status', { taskId })).isError).toBe(true)
    expect((await bob.call('task_cancel', { taskId })).isError).toBe(true)
    expect(paid).toHaveLength(0)
    expect(await untilEnded(roundsHost(server, { 'x-user': 'alice' }), taskId)).toMatchObject({
      text: 'paid',
    })
  })
})

describe('the option tasks.tools', () => {
  it('G6 reserves the names, and only with the option', () => {
    const server = start()
    expect(() => server.tool('task_status', {}, () => '')).toThrow(TypeError)
    expect(() => server.tool('task_cancel', {}, () => '')).toThrow(/tasks: \{ tools: true \}/)
    expect(server.remove('tools', 'task_status')).toBe(false)
    const plain = createServer({ name: 'a', version: '1', log: 'off' })
    servers.push(plain)
    plain.tool('task_status', {}, () => 'mine')
    expect(plain.remove('tools', 'task_status')).toBe(true)
  })

  it('G6 needs a store, and true or false', () => {
    const given = { name: 'a', version: '1', log: 'off' } as const
    expect(() => createServer({ ...given, tasks: { tools: true } })).toThrow(/needs a store/)
    expect(() =>
      createServer({ ...given, store: createMemoryStore(), tasks: { tools: 'yes' as never } }),
    ).toThrow(/true, false or/)
    for (const waitMs of [-1, Number.NaN, 60_000, '5' as never])
      expect(() =>
        createServer({ ...given, store: createMemoryStore(), tasks: { tools: { waitMs } } }),
      ).toThrow(TypeError)
  })

  it('G6 is refused on an official server, where nothing would list the tools', () => {
    const given = { audience: 'a', log: 'off', store: createMemoryStore(), tasks: { tools: true } } as const
    expect(() => createRondo(given)).toThrow(/option of createServer/)
  })

  it('G6 lists an output schema that allows the handle of a task, and returns one that fits it', async () => {
    const server = start()
    const { result } = await send(server, 'tools/list', {}, { capabilities: PLAIN })
    const listed = (
      (result?.tools ?? []) as { name: string; outputSchema?: object; execution?: unknown }[]
    ).map((tool) => [tool.name, tool] as const)
    const tools = Object.fromEntries(listed)
    expect(tools.task_status).toBeDefined()
    expect(tools.sums?.outputSchema).toMatchObject({
      type: 'object',
      anyOf: [{ required: ['sum'] }, { required: ['task'] }],
    })
    const host = roundsHost(server)
    const started = await host.call('sums')
    // Codex shows its model the structured content alone.
    const next = expect.stringMatching(
      /^Call task_status with .*task_status asks the user.*Do not call "sums" again for the same work\.$/,
    )
    expect(started.structuredContent).toMatchObject({
      task: { taskId: idIn(started), status: 'working', next },
    })
    expect(await untilEnded(host, idIn(started))).toMatchObject({ structuredContent: { sum: 3 } })
  })

  it('G6 does not change what is listed or returned without the option', async () => {
    const server = start({ tasks: {} })
    const { result } = await send(server, 'tools/list', {}, { capabilities: PLAIN })
    const names = ((result?.tools ?? []) as { name: string }[]).map((tool) => tool.name)
    expect(names).not.toContain('task_status')
    expect(await roundsHost(server).call('sums')).toMatchObject({ structuredContent: { sum: 3 } })
  })
})

describe('the tool task_status', () => {
  it('G6 waits for a task that is about to end', async () => {
    const server = start({ tasks: { tools: { waitMs: 55_000 } } })
    let open = (): void => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    server.tool('gated', { task: 'auto' }, (_args, ctx) => ctx.step('gate', () => gate.then(() => 'through')))
    const host = roundsHost(server)
    const status = host.call('task_status', { taskId: idIn(await host.call('gated')) })
    open()
    expect(await status).toMatchObject({ text: 'through' })
  })

  it('G6 says that the task works, and when to call again', async () => {
    const host = roundsHost(start({ tasks: { tools: { waitMs: 0 }, pollMs: 2_500 } }))
    const { text, structuredContent } = await host.call('task_status', {
      taskId: idIn(await host.call('waits')),
    })
    expect(text).toMatch(
      /^The task [\w-]{22} is working.*Call task_status again with \{"taskId":"[\w-]{22}","after":1\} in 3 s\.$/,
    )
    expect(structuredContent).toMatchObject({ task: { status: 'working' } })
  })

  it('G6 waits 25 seconds unless told otherwise: a model that polls more often runs into the loop guards of hosts', () => {
    const host = createHost({ audience: 'a', log: 'off', store: createMemoryStore(), tasks: { tools: true } })
    expect(host.tasks?.tools).toEqual({ waitMs: 25_000 })
    host.close()
  })

  it('G6 names another counter for each call, which hosts that stop repeated calls let through', async () => {
    const server = start({ tasks: { tools: { waitMs: 0 } } })
    const { result } = await send(server, 'tools/list', {}, { capabilities: PLAIN })
    const tools = (result?.tools ?? []) as { name: string; inputSchema: object }[]
    const listed = tools.find((tool) => tool.name === 'task_status')
    expect(listed?.inputSchema).toMatchObject({
      properties: { after: { type: 'integer' } },
      required: ['taskId'],
    })
    const host = roundsHost(server)
    let args: Record<string, unknown> = { taskId: idIn(await host.call('waits')) }
    const sent = new Set([JSON.stringify(args)])
    for (let i = 1; i <= 6; i++) {
      const { text } = await host.call('task_status', args)
      args = JSON.parse(/again with (\{.*\})/.exec(text)?.[1] ?? '')
      sent.add(JSON.stringify(args))
    }
    expect(args.after).toBe(6)
    expect(sent.size).toBe(7)
  })

  it('G6 returns the state when the server begins to drain, instead of losing it with the process', async () => {
    const server = start({ tasks: { tools: { waitMs: 55_000 } } })
    const host = roundsHost(server)
    let open = (): void => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    const begun = new Promise<void>((running) => {
      server.tool('long', { task: 'auto' }, (_args, ctx) =>
        ctx.step('long', () => {
          running()
          return gate.then(() => 'through')
        }),
      )
    })
    const status = host.call('task_status', { taskId: idIn(await host.call('long')) })
    await begun
    const closed = server.close()
    expect(await status).toMatchObject({ isError: false, text: expect.stringMatching(/is working/) })
    open()
    await closed
  })
})
