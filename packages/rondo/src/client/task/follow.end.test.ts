/** The possible ends of a task that is followed. */

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../../test/support/manual-clock.ts'
import {
  asks,
  completed,
  methods,
  polling,
  question,
  rush,
  task,
  taskServer,
  yes,
} from '../../../../../test/support/scripted-task.ts'
import { connect } from '../connect.ts'

describe('the end of a task', () => {
  it('E8 throws the server’s own error if the task failed', async () => {
    const clock = createManualClock()
    const server = taskServer(task('failed', { error: { code: -32603, message: 'broke', data: 7 } }))
    const client = await connect(server, polling({ clock }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({
      code: 'PEER_ERROR',
      peer: { code: -32603, message: 'broke', data: 7 },
    })
    expect(methods(server.seen)).not.toContain('tasks/cancel')
  })

  it('throws a separate error if the task was cancelled', async () => {
    const clock = createManualClock()
    const client = await connect(taskServer(task('cancelled')), polling({ clock }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'PEER_TASK_CANCELLED' })
  })

  it('C12 T22 is forced by the deadline if the task never ends, and the task is cancelled', async () => {
    const clock = createManualClock()
    const server = taskServer(task('working'))
    const client = await connect(server, polling({ clock, deadlineMs: 30_000 }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
    expect(methods(server.seen).at(-1)).toBe('tasks/cancel')
    expect(methods(server.seen).filter((method) => method === 'tasks/get').length).toBeLessThanOrEqual(30)
  })

  it('C12 is not forced by the time that people take to answer', async () => {
    const clock = createManualClock()
    const slowly = () => {
      clock.advance(86_400_000)
      return yes()
    }
    const server = taskServer(asks({ a: question }), task('working'), completed('done'))
    const options = polling({ clock, deadlineMs: 30_000, answers: { elicitation: { form: slowly } } })
    expect(await rush((await connect(server, options)).callTool('t'), clock)).toMatchObject({
      content: [{ text: 'done' }],
    })
    const impatient = await connect(taskServer(asks({ a: question }), completed('done')), {
      ...options,
      countHumanTime: true,
    })
    await expect(rush(impatient.callTool('t'), clock)).rejects.toMatchObject({
      code: 'LIMIT_CLIENT_DEADLINE',
    })
  })

  it('C12 cancels the task when the caller aborts', async () => {
    const clock = createManualClock()
    const stop = new AbortController()
    const server = taskServer(() => {
      stop.abort(new Error('enough'))
      return task('working')
    })
    const client = await connect(server, polling({ clock }))
    await expect(rush(client.callTool('t', {}, { signal: stop.signal }), clock)).rejects.toThrow('enough')
    expect(methods(server.seen).at(-1)).toBe('tasks/cancel')
  })

  it('does not cancel the task when the client is closed', async () => {
    const clock = createManualClock()
    const server = taskServer(task('working'))
    const client = await connect(server, polling({ clock }))
    const call = client.callTool('t')
    const failed = expect(call).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    await clock.elapse(1_000)
    await client.close()
    await failed
    expect(methods(server.seen)).not.toContain('tasks/cancel')
  })

  it('T22 does not read a result larger than a response may be', async () => {
    const clock = createManualClock()
    const huge = completed('x'.repeat(2_000_000))
    const client = await connect(taskServer(huge), polling({ clock, maxResponseBytes: 1_000_000 }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'LIMIT_CLIENT_BYTES' })
    const patient = await connect(taskServer(huge), polling({ clock }))
    expect((await rush(patient.callTool('t'), clock)).content).toHaveLength(1)
  })
})
