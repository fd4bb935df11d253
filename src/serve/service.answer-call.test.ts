import { describe, expect, it } from 'vitest'
import type { LogEvent } from '../carry/host.ts'
import type { FlowCall, Line } from '../protocol/call.ts'
import { watchSlow } from './service.ts'

const CALL: FlowCall = {
  kind: 'flow',
  id: 1,
  protocolVersion: '2026-07-28',
  capabilities: {},
  method: 'tools/call',
  target: 'index',
  args: {},
}

function start(slowCallMs = 60_000) {
  const events: LogEvent[] = []
  const ticks = new Set<() => void>()
  const line: Line & { waiting: boolean } = {
    waiting: false,
    closed: false,
    notify: () => {},
    onClose: () => () => {},
  }
  const every = (ms: number, tick: () => void) => {
    expect(ms).toBe(slowCallMs)
    ticks.add(tick)
    return () => void ticks.delete(tick)
  }
  let end = (): void => {}
  const work = new Promise<string>((resolve) => {
    end = () => resolve('done')
  })
  const watch = { slowCallMs, every, log: (event: LogEvent) => void events.push(event) }
  const watched = watchSlow(watch, CALL, line, work)
  const minute = (): void => {
    for (const tick of [...ticks]) tick()
  }
  return { events, ticks, line, end, watched, minute }
}

describe('I2 a call that does not end', () => {
  it('is logged once, and goes on', async () => {
    const { events, ticks, end, watched, minute } = start()
    minute()
    minute()
    expect(events).toEqual([
      {
        event: 'warning',
        message: 'A call of "index" (tools/call) is still running after 60 s and waits for no answer',
      },
    ])
    end()
    expect(await watched).toBe('done')
    expect(ticks.size).toBe(0)
  })

  it('is not logged while it waits for an answer', () => {
    const { events, line, minute } = start()
    line.waiting = true
    minute()
    expect(events).toEqual([])
    line.waiting = false
    minute()
    expect(events).toHaveLength(1)
  })

  it('is not watched with 0, or after its end', async () => {
    expect(start(0).ticks.size).toBe(0)
    const { ticks, end, watched } = start()
    end()
    await watched
    expect(ticks.size).toBe(0)
  })
})
