/**
 * An operator's changes, as clients other than those of 2026-07-28 see them: a session of 2025-11-25 that follows its tasks, and a host
 * that reaches them through tools.
 */

import { createServer, parseKeys, type Server } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { changeTask, changeTool, type OpenDesk, type TaskAction } from '../../packages/cli/src/operate.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { OperatorStore } from '../../packages/rondo/src/store/operator.ts'
import { create, errorOf, keys, resultOf, start as startOlder, until } from '../support/session-tasks.ts'
import { idIn, roundsHost, untilEnded } from '../support/task-tools.ts'

const closing: Server[] = []
afterEach(async () => {
  await Promise.all(closing.splice(0).map((server) => server.close()))
})

function createDesk() {
  const store = createMemoryStore()
  const ring = parseKeys(keys)
  const desk: OpenDesk = {
    name: 'store',
    operator: store.operator as OperatorStore,
    keys: () => ring,
    who: 'ann',
  }
  const act = async (action: TaskAction, id: string, message?: string) =>
    (await changeTask(desk, action, id, { message, confirm: async () => {} })).outcome
  return { store, desk, act }
}

describe('a session of 2025-11-25', () => {
  const answer = () => ({ action: 'accept', content: { name: 'Ada' } })

  it('M4 reads why an operator ended its task, and continues it after a retry', async () => {
    const { store, act } = createDesk()
    const client = await (await startOlder({ store }))('ada', { answer })
    const { taskId } = await create(client)
    await until(client, taskId, 'input_required')
    expect(await act('fail', taskId, 'The supplier has closed')).toBe('done')
    expect(await until(client, taskId, 'failed')).toMatchObject({ status: 'failed' })
    expect(errorOf(await client.call('tasks/result', { taskId }))?.message).toContain(
      'The supplier has closed',
    )
    expect(client.asked).toEqual([])
    expect(await act('retry', taskId)).toBe('done')
    expect(resultOf(await client.call('tasks/result', { taskId }))).toMatchObject({
      content: [{ text: 'Hello Ada' }],
    })
    expect([await act('cancel', taskId), await act('purge', taskId)]).toEqual(['refused', 'done'])
    expect(errorOf(await client.call('tasks/get', { taskId }))?.code).toBe(-32602)
  })

  it('M4 has its question withdrawn when an operator cancels the task', async () => {
    const { store, act } = createDesk()
    const client = await (await startOlder({ store }))('ada')
    const { taskId } = await create(client)
    const waiting = client.call('tasks/result', { taskId })
    await expect.poll(() => client.asked.length).toBe(1)
    expect(await act('cancel', taskId)).toBe('done')
    expect(errorOf(await waiting)?.code).toBe(-32602)
    expect(await until(client, taskId, 'cancelled')).toMatchObject({ taskId })
  })

  it('M4 waits while its tool is paused, and no other tool does', async () => {
    const { store, desk } = createDesk()
    const client = await (await startOlder({ store }))('ada', { answer })
    expect(await changeTool(desk, 'pause', 'greet')).toMatchObject({ outcome: 'done' })
    const { taskId } = await create(client)
    const free = await create(client, 'only')
    expect(resultOf(await client.call('tasks/result', { taskId: free.taskId }))).toMatchObject({
      content: [{ text: 'as a task' }],
    })
    expect(resultOf(await client.call('tasks/get', { taskId }))).toMatchObject({ status: 'working' })
    expect(client.asked).toEqual([])
    await changeTool(desk, 'continue', 'greet')
    expect(resultOf(await client.call('tasks/result', { taskId }))).toMatchObject({
      content: [{ text: 'Hello Ada' }],
    })
  })
})

describe('a host that reaches tasks through tools', () => {
  function start() {
    const { store, desk, act } = createDesk()
    const server = createServer({
      ...{ name: 'shop', version: '1', keys, log: 'off', store },
      tasks: { tools: true },
    })
    closing.push(server)
    const ran: string[] = []
    server.tool('book', { task: 'auto' }, async (_args, ctx) => {
      ran.push('book')
      return (await ctx.confirm('sure', 'Sure?')) ? 'Booked.' : 'Not booked.'
    })
    server.tool('free', { task: 'auto' }, () => 'Free.')
    return { desk, act, ran, host: roundsHost(server) }
  }
  const yes = { sure: { confirm: true } }

  it('M4 reads why an operator ended the task, and continues it after a retry', async () => {
    const { host, act } = start()
    const taskId = idIn(await host.call('book'))
    expect(await act('fail', taskId, 'The supplier has closed')).toBe('done')
    const failed = await host.call('task_status', { taskId })
    expect(failed).toMatchObject({
      isError: true,
      text: expect.stringContaining('The supplier has closed'),
    })
    expect(await act('retry', taskId)).toBe('done')
    expect(await untilEnded(host, taskId, yes)).toMatchObject({ text: 'Booked.', isError: false })
  })

  it('M4 is told that the task was cancelled, and later that it is unknown', async () => {
    const { host, act } = start()
    const taskId = idIn(await host.call('book'))
    expect(await act('cancel', taskId)).toBe('done')
    expect((await host.call('task_status', { taskId })).text).toMatch(/cancelled/)
    expect(await act('purge', taskId)).toBe('done')
    expect(await host.call('task_status', { taskId })).toMatchObject({ isError: true })
  })

  it('M4 waits while the tool is paused', async () => {
    const { host, desk, ran } = start()
    await changeTool(desk, 'pause', 'book')
    const taskId = idIn(await host.call('book'))
    expect(await untilEnded(host, idIn(await host.call('free')))).toMatchObject({ text: 'Free.' })
    expect(ran).toEqual([])
    await changeTool(desk, 'continue', 'book')
    expect(await untilEnded(host, taskId, yes)).toMatchObject({ text: 'Booked.' })
  })
})
