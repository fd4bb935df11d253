import { describe, expect, it } from 'vitest'
import type { FlowCall } from '../protocol/call.ts'
import { costOf } from '../serve/limits.ts'
import type { Load } from '../serve/port.ts'
import { createParcel } from './parcel.ts'

const callWith = (args: FlowCall['args']): FlowCall => ({
  kind: 'flow',
  method: 'tools/call',
  target: 'a',
  args,
  inputResponses: undefined,
  requestState: undefined,
  id: 1,
  protocolVersion: '2025-11-25',
  capabilities: {},
})

/** A weight that somebody holds. */
function start() {
  const state = { held: 0, asked: [] as number[], admit: () => {} }
  const hold = () => {
    state.held += 1
    let isHeld = true
    return () => {
      if (isHeld) state.held -= 1
      isHeld = false
    }
  }
  const load: Load = {
    weight: 50,
    weigh: () => true,
    hold,
    reclaim(weight) {
      state.asked.push(weight)
      return new Promise((resolve) => {
        state.admit = () => resolve(hold())
      })
    },
  }
  return { state, load }
}

describe('the arguments of a call', () => {
  it('N2 count until the call ends, or waits', () => {
    const { state, load } = start()
    const first = createParcel(callWith({ a: 1 }), load)
    expect(state.held).toBe(1)
    first.end()
    expect(state.held).toBe(0)
    createParcel(callWith({ a: 1 }), load).pack()
    expect(state.held).toBe(0)
  })

  it('N2 are kept as text while the call waits, and belong to it again when there is room', async () => {
    const { state, load } = start()
    const given = callWith({ a: 1 })
    const { call, args, pack, unpack, end } = createParcel(given, load)
    expect([call.args, args()]).toEqual([{ a: 1 }, { a: 1 }])
    expect(pack()).toBe(costOf('{"a":1}'))
    expect([call.args, args(), given.args]).toEqual([{}, { a: 1 }, { a: 1 }])
    const unpacked = unpack()
    expect([call.args, state.asked]).toEqual([{}, [50]])
    state.admit()
    await unpacked
    expect([call.args, state.held]).toEqual([{ a: 1 }, 1])
    expect(args()).toBe(call.args)
    end()
    expect(state.held).toBe(0)
  })

  it('are what the client sent, whatever the handler does to them', async () => {
    const { call, args, pack, unpack } = createParcel(callWith({ list: [1] }), undefined)
    const size = pack()
    await unpack()
    Object.assign(call.args, { list: [1, 2] })
    expect(pack()).toBe(size)
    expect(args()).toEqual({ list: [1] })
    await unpack()
    expect(call.args).toEqual({ list: [1] })
  })

  it('N2 are released if the call ends while it waits for room', async () => {
    const { state, load } = start()
    const { call, pack, unpack, end } = createParcel(callWith({ a: 1 }), load, 7)
    pack()
    const unpacked = unpack()
    expect(state.asked).toEqual([7])
    end()
    state.admit()
    await unpacked
    expect([call.args, state.held]).toEqual([{}, 0])
    const light = createParcel(callWith({ a: 1 }), undefined)
    light.pack()
    light.end()
    await light.unpack()
    expect(light.call.args).toEqual({})
  })
})
