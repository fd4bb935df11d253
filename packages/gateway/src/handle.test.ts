import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../test/support/manual-clock.ts'
import { createHandles } from './handle.ts'

const DONE = { content: [] }

describe('a handle', () => {
  it('W2 K5 is unknown to another caller, and returns the result to its own', async () => {
    const handles = createHandles(createManualClock())
    const id = handles.keep('ada', Promise.resolve(DONE), () => {}) ?? ''
    expect(await handles.status(id, 'eve')).toBe('unknown')
    expect(await handles.status(id, 'ada')).toEqual({ result: DONE })
  })

  it('R9 expires after an hour, and its call is cancelled', async () => {
    const clock = createManualClock()
    const handles = createHandles(clock)
    let cancelled = 0
    const id =
      handles.keep('ada', new Promise(() => {}), () => {
        cancelled += 1
      }) ?? ''
    clock.advance(3_599_999)
    expect(cancelled).toBe(0)
    clock.advance(1)
    expect([cancelled, await handles.status(id, 'ada')]).toEqual([1, 'unknown'])
  })
})
