import { describe, expect, it } from 'vitest'
import { besideOurs, SealedState } from './sdk-state.ts'

describe('our states beside those of another server', () => {
  const verify = besideOurs((state) => `theirs: ${state}`)
  const at = {} as never

  it.each(['r1.sealed', 'h1.stored'])('F4 lets %s pass unopened, showing nothing of it', async (state) => {
    const held = await verify(state, at)
    expect(held).toBeInstanceOf(SealedState)
    expect(JSON.stringify(held)).not.toContain(state)
    expect(SealedState.open(held)).toBe(state)
  })

  it('hands every other state to the server that made it', async () => {
    for (const state of ['', 'r2.x', 'x r1.y', 'h1x'])
      expect(await verify(state, at)).toBe(`theirs: ${state}`)
  })
})
