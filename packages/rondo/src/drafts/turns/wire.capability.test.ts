import { describe, expect, it } from 'vitest'
import { rememberedCapabilities } from '../../protocol/common/request.ts'
import { EXPERIMENTAL, echoesState, takesTurns } from './wire.ts'

describe('a client', () => {
  it('F5 takes part only if it says so', () => {
    const both = { experimental: { 'multi-turn-sse': {}, 'request-state': {} } }
    expect([takesTurns(both), echoesState(both)]).toEqual([true, true])
    for (const none of [{}, { experimental: true }, { experimental: { 'multi-turn-sse': true } }]) {
      expect([takesTurns(none), echoesState(none)]).toEqual([false, false])
    }
  })

  it('has only those capabilities remembered that say what may be asked, and how', () => {
    const declared = {
      elicitation: { form: { x: 'y'.repeat(1000) }, url: {}, voice: {} },
      sampling: {},
      roots: { listChanged: true },
      experimental: { 'multi-turn-sse': { a: 1 }, other: {} },
      tasks: { list: {} },
    }
    expect(rememberedCapabilities(declared, EXPERIMENTAL)).toEqual({
      elicitation: { form: {}, url: {} },
      sampling: {},
      roots: {},
      experimental: { 'multi-turn-sse': {} },
    })
  })
})
