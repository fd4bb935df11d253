import { describe, expect, it } from 'vitest'
import { RondoError, ToolError } from '../errors.ts'
import { createServer } from '../serve/server.ts'
import { createBench } from './bench.ts'
import { decline } from './call.ts'

const value = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] } as const

function makeBench(awake: number[] = []) {
  return createBench((options) => {
    const server = createServer({ name: 'bench', version: '1', ...options })
    server.tool('ask', { task: 'auto' }, async (_args, ctx) => {
      ctx.status('asking')
      return `Hello ${(await ctx.ask('name', { message: 'Name?', schema: value })).value}`
    })
    server.tool('fails', { task: 'always' }, () => {
      throw new ToolError('out of stock')
    })
    server.tool('breaks', { task: 'always' }, () => {
      throw new RondoError('SERVER_HANDLER', 'broken')
    })
    server.tool('plain', {}, () => 'at once')
    server.tool('sleep', { task: 'always' }, async (_args, ctx) => {
      await ctx.sleep('night', '8 h')
      awake.push(options.now())
      return 'slept'
    })
    return server
  })
}

describe('a bench with tasks', () => {
  it('runs a call in rounds for a client that does not support tasks', async () => {
    const call = makeBench().tool('ask')
    expect(await call.run({ name: { value: 'Ada' } })).toMatchObject({ kind: 'complete', text: 'Hello Ada' })
    expect(call.rounds).toBe(2)
  })

  it('follows a task to its end, and collects its status messages', async () => {
    const task = makeBench().task('ask')
    expect(await task.run({ name: { value: 'Ada' } })).toMatchObject({ kind: 'complete', text: 'Hello Ada' })
    expect(task.taskId).toMatch(/^[\w-]{20,}$/)
    expect(task.messages).toContain('asking')
  })

  it('answers a repeated question under its new key', async () => {
    const task = makeBench().task('ask')
    await task.next()
    const again = await task.next({ name: { value: 5 } })
    expect(again).toMatchObject({ kind: 'input_required', questions: { 'name~2': {} } })
    expect(await task.next({ 'name~2': { value: 'Ada' } })).toMatchObject({ text: 'Hello Ada' })
  })

  it('returns the result of a tool that never becomes a task', async () => {
    const task = makeBench().task('plain')
    expect(await task.run()).toMatchObject({ kind: 'complete', text: 'at once' })
    expect(task.taskId).toBeUndefined()
  })

  it('distinguishes failures of the tool from errors of the protocol', async () => {
    const bench = makeBench()
    expect(await bench.task('fails').run()).toMatchObject({ kind: 'complete', text: 'out of stock' })
    expect(await bench.task('breaks').run()).toMatchObject({ kind: 'error', code: -32603, message: 'broken' })
    expect(await bench.task('ask').run({ name: decline })).toMatchObject({ result: { isError: true } })
  })

  it('cancels a task, and hides it from other callers', async () => {
    const task = makeBench().task('ask', {}, { principal: { subject: 'ada' } })
    await task.next()
    expect(await task.as({ subject: 'eve' }).next()).toMatchObject({
      kind: 'error',
      message: 'Task not found',
    })
    task.as({ subject: 'ada' })
    await task.cancel()
    expect(await task.next()).toEqual({ kind: 'cancelled' })
  })

  it('expires tasks by the clock of the bench', async () => {
    const bench = makeBench()
    const task = bench.task('ask')
    await task.next()
    bench.clock.advance(25 * 3_600_000)
    expect(await task.next()).toMatchObject({ kind: 'error', message: 'Task not found' })
  })

  it('runs the tasks that are due after a restart, before any request', async () => {
    const awake: number[] = []
    const bench = makeBench(awake)
    const task = bench.task('sleep')
    expect(await task.next()).toMatchObject({ kind: 'sleeping' })
    await task.restart()
    await bench.advance('9 h')
    // Development mode runs the turn twice.
    expect(awake).toEqual([bench.clock.now, bench.clock.now])
    expect(await task.next()).toMatchObject({ kind: 'complete', text: 'slept' })
  })

  it('names the answers that a script lacks, and those that are never asked for', async () => {
    await expect(makeBench().task('ask').run()).rejects.toThrow('no answer to "name"')
    await expect(
      makeBench()
        .task('ask')
        .run({ name: { value: 'Ada' }, age: { value: '7' } }),
    ).rejects.toThrow(/never asked for age\. It ended with: \S/)
  })
})
