/** A pending call that the server works on as a task: waited for, or given up. Needs the build. */

import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EXITS } from '../../src/cli/command-line.ts'
import { connect } from '../../src/client.ts'
import { createServer, type Listening } from '../../src/index.ts'
import { createMemoryStore } from '../../src/store/memory/store.ts'
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
