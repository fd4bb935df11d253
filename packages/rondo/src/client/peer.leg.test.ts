/** The times of a call: of one leg, of all of them, of people, and cancellation. */

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import { asking, formQuestion, said, scriptServer } from '../../../../test/support/scripted-server.ts'
import type { Clock } from '../lib/clock.ts'
import type { ElicitResult } from '../protocol/wire.ts'
import { connect } from './connect.ts'
import { openLeg } from './peer.ts'
import type { AskInfo } from './question.ts'

const yes = (): ElicitResult => ({ action: 'accept', content: { x: 'y' } })
const question = formQuestion('Which?', 'x')

describe('the time of a call', () => {
  const never = () => new Promise<never>(() => {})

  it('C12 aborts a request that takes too long', async () => {
    const clock = createManualClock()
    const client = await connect(scriptServer(never), { clock, timeoutMs: 500 })
    const call = client.callTool('t')
    await Promise.all([
      expect(call).rejects.toMatchObject({ code: 'LIMIT_CLIENT_TIMEOUT' }),
      clock.elapse(500),
    ])
    expect(clock.open).toBe(0)
  })

  it('C12 limits the work of all rounds together, but not the time people take', async () => {
    const clock = createManualClock()
    const form = () => {
      clock.advance(1_000_000)
      return yes()
    }
    const slow = (reply: object) => () => {
      clock.advance(400)
      return reply as Record<string, unknown>
    }
    const script = [slow(asking({ a: question })), slow(asking({ a: question })), never]
    const client = await connect(scriptServer(...script), {
      clock,
      deadlineMs: 1_000,
      answers: { elicitation: { form } },
    })
    const call = client.callTool('t')
    await Promise.all([
      expect(call).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' }),
      clock.elapse(200),
    ])
  })

  it('C12 counts human time with countHumanTime, and then does not wait for the person', async () => {
    const clock = createManualClock()
    let inner: AbortSignal | undefined
    const form = (_params: unknown, { signal }: AskInfo) => {
      inner = signal
      queueMicrotask(() => clock.advance(5_000))
      return never()
    }
    const client = await connect(scriptServer(asking({ a: question })), {
      clock,
      deadlineMs: 5_000,
      countHumanTime: true,
      answers: { elicitation: { form } },
    })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
    expect(inner?.aborted).toBe(true)
  })

  it.each(['waits for the server', 'waits for a person', 'paces itself'])(
    'C12 can be cancelled while it %s',
    async (when) => {
      const controller = new AbortController()
      const stop = () => {
        controller.abort(new Error('enough'))
        return never()
      }
      const timers = createManualClock()
      const clock: Clock = {
        now: timers.now,
        after(ms, run) {
          if (ms === 50) queueMicrotask(stop)
          return timers.after(ms, run)
        },
      }
      const form = when === 'waits for a person' ? stop : yes
      const first = when === 'paces itself' ? asking(undefined, 's') : asking({ a: question })
      const server = scriptServer(when === 'waits for the server' ? stop : first, said('done'))
      const client = await connect(server, { clock, answers: { elicitation: { form } } })
      const call = client.callTool('t', {}, { signal: controller.signal })
      await expect(call).rejects.toThrow('enough')
      expect(server.seen).toHaveLength(1)
      expect(timers.open).toBe(0)
    },
  )

  it('cancels the request at the server by closing the connection', async () => {
    const controller = new AbortController()
    const server = scriptServer(() => {
      controller.abort()
      return never()
    })
    const client = await connect(server)
    await expect(client.callTool('t', {}, { signal: controller.signal })).rejects.toThrow()
    expect(server.seen[0]?.signal.aborted).toBe(true)
  })

  it('C12 stops while somebody is asked', () => {
    const clock = createManualClock()
    const leg = openLeg(clock, { timeoutMs: 100, deadlineAt: clock.now() + 150 })
    clock.advance(60)
    const goOn = leg.pause()
    const goOnToo = leg.pause()
    clock.advance(10_000)
    leg.touch()
    goOn()
    clock.advance(10_000)
    expect(leg.signal.aborted).toBe(false)
    goOnToo()
    clock.advance(89)
    expect(leg.signal.aborted).toBe(false)
    clock.advance(1)
    expect(leg.signal.reason).toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
  })

  it('C12 keeps the deadline running meanwhile if human time counts', () => {
    const clock = createManualClock()
    const leg = openLeg(clock, { timeoutMs: 100, deadlineAt: clock.now() + 150, countHumanTime: true })
    leg.pause()
    clock.advance(149)
    expect(leg.signal.aborted).toBe(false)
    clock.advance(1)
    expect(leg.signal.reason).toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
  })

  it('starts no timer after the request has ended', () => {
    const clock = createManualClock()
    const leg = openLeg(clock, { timeoutMs: 100 })
    const goOn = leg.pause()
    leg.end()
    goOn()
    expect(clock.open).toBe(0)
  })
})
