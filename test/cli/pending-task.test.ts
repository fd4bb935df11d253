/** A pending call that the server works on as a task: waited for, or given up. Needs the build. */

import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { connect } from '../../packages/rondo/src/client.ts'
import { createServer, type Listening } from '../../packages/rondo/src/index.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { useCliHome } from '../support/use-cli.ts'

const home = useCliHome()

const WHO = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } as const

describe('a call that continues as a task', () => {
  const stored = createServer({
    name: 'tasks',
    version: '1.0.0',
    log: 'off',
    keys: generateKey(),
    store: createMemoryStore(),
  })
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  stored.tool('report', { description: 'Takes a while', task: 'always' }, async (_args, ctx) => {
    await opened
    const { name } = (await ctx.ask('who', { message: 'For whom?', schema: WHO })) as { name: string }
    return `report for ${name}`
  })
  let tasks: Listening

  beforeAll(async () => {
    tasks = await stored.listen({ port: 0, signals: false })
  })
  afterAll(() => stored.close())

  it('is not awaited with --detach; "rondo resume" awaits it and asks its questions', async () => {
    const { value, code } = await home.json(['call', tasks.url, 'report', '--detach'])
    expect(code).toBe(EXITS.pending.code)
    expect(value.task).toMatchObject({ taskId: expect.any(String) })
    const id = String(value.id)
    expect((await home.run(['pending'])).stdout).toContain('a task')
    const waiting = home.json(['resume', id])
    open()
    expect((await waiting).value).toMatchObject({ status: 'input_required', questions: { who: {} } })
    expect(await home.run(['answer', id, 'who.name=Ada'])).toMatchObject({
      code: 0,
      stdout: 'report for Ada\n',
    })
    expect(home.files()).toEqual([])
  })

  it('is cancelled when it is abandoned', async () => {
    const { value } = await home.json(['call', tasks.url, 'report', '--detach'])
    const { taskId } = value.task as { taskId: string }
    expect((await home.run(['abandon', String(value.id)])).code).toBe(0)
    const client = await connect(tasks.url)
    expect(await client.task(taskId).get()).toMatchObject({ status: 'cancelled' })
    await client.close()
  })
})

describe('a task whose server is gone', () => {
  it('stays when it is abandoned, which names --keep, and goes with --keep', async () => {
    const server = createServer({
      name: 'gone',
      version: '1.0.0',
      log: 'off',
      keys: generateKey(),
      store: createMemoryStore(),
    })
    server.tool('report', { task: 'always' }, async (_args, ctx) => {
      await ctx.ask('who', { message: 'For whom?', schema: WHO })
    })
    const { url } = await server.listen({ port: 0, signals: false })
    const { value } = await home.json(['call', url, 'report', '--detach'])
    await server.close()
    const id = String(value.id)
    const refused = await home.run(['abandon', id])
    expect(refused.code).toBe(EXITS.unreachable.code)
    expect(refused.stderr).toContain('"--keep" abandons it without cancelling')
    expect(home.files()).toHaveLength(1)
    expect((await home.run(['abandon', id, '--keep'])).code).toBe(0)
    expect(home.files()).toEqual([])
  })
})

describe('a task that begins with an effect', () => {
  let payments = 0
  const server = createServer({
    name: 'payments',
    version: '1.0.0',
    log: 'off',
    keys: generateKey(),
    store: createMemoryStore(),
    turns: false,
  })
  server.tool('pay', { task: 'always' }, (_args, ctx) =>
    ctx.effect('payment', () => {
      payments += 1
      return 'paid'
    }),
  )
  let url: string

  beforeAll(async () => {
    url = (await server.listen({ port: 0, signals: false })).url
  })
  afterAll(() => server.close())

  it.each([
    ['2026-07-28', []],
    ['DRAFT-2026-v1', ['--revision', 'DRAFT-2026-v1']],
    ['2025-11-25', ['--revision', '2025-11-25', '--task-ttl', '60']],
  ])(
    'R6 runs after --detach without another command, because its id has arrived: %s',
    async (_version, revision) => {
      const before = payments
      const { value, code } = await home.json(['call', url, 'pay', '--detach', ...revision])
      expect([code, value.status]).toEqual([EXITS.pending.code, 'task'])
      await expect.poll(() => payments, { timeout: 120_000 }).toBe(before + 1)
      expect(await home.run(['resume', String(value.id)])).toMatchObject({ code: 0, stdout: 'paid\n' })
      expect(payments).toBe(before + 1)
    },
  )
})
