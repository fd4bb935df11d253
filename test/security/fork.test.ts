/**
 * One state, redeemed twice with different answers: the attacker pays for one item, abandons the call, and lets a second
 * branch use the payment of the first (R7).
 */

import { createServer } from 'rondo'
import { createBench, type TestBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'

type KeyOf = (given: { key: string; flow: string }) => string

/** Honours idempotency keys, as providers do: the same key again gets the first charge. */
function createProvider() {
  const charges = new Map<string, number>()
  return {
    charges,
    charge(key: string, amount: number): number {
      if (!charges.has(key)) charges.set(key, amount)
      return charges.get(key) ?? 0
    },
  }
}

const ours: KeyOf = ({ key }) => key
/** A weak key: derived from the flow and the name of the effect alone. */
const ofTheFlow: KeyOf = ({ flow }) => `${flow}:charge`

interface Shop {
  readonly keyOf?: KeyOf
  readonly once?: boolean
}

const QTY = { message: 'How many?', schema: z.object({ qty: z.int() }) }

function openShop({ keyOf = ours, once = false }: Shop) {
  const provider = createProvider()
  const shipped: { qty: number; paid: number }[] = []
  const bench = createBench((options) => {
    const server = createServer({ name: 'shop', version: '1', ...options })
    server.tool('order', {}, async (_args, ctx) => {
      const { qty } = await ctx.ask('qty', QTY)
      const charge = ({ key }: { key: string }) => provider.charge(keyOf({ key, flow: ctx.flow }), qty)
      const paid = await ctx.effect('charge', charge, { once })
      if (!(await ctx.confirm('ship', `Ship ${qty}?`))) return 'Not shipped.'
      await ctx.effect('send', () => void shipped.push({ qty, paid }))
      return 'Shipped.'
    })
    return server
  })
  return { bench, provider, shipped }
}

/** Sends one state twice, with one answer and then with another. */
async function fork(bench: TestBench): Promise<void> {
  const call = bench.tool('order')
  await call.next()
  const { state } = call
  expect(await call.next({ qty: { qty: 1 } })).toMatchObject({ questions: { ship: {} } })
  const other = bench.tool('order')
  await other.next()
  other.state = state
  await other.next({ qty: { qty: 1000 } })
  expect(await other.next({ ship: { confirm: true } })).toMatchObject({ text: 'Shipped.' })
}

describe('I4 R7 each branch of a forked state pays for itself', () => {
  it.each([false, true])('charges each branch under its own key (once: %s)', async (once) => {
    const { bench, provider, shipped } = openShop({ once })
    await fork(bench)
    expect([...provider.charges.values()]).toEqual([1, 1000])
    expect(shipped).toEqual([{ qty: 1000, paid: 1000 }])
  })

  it('control: with a key that ignores the answers, a thousand items cost as much as one', async () => {
    const { bench, shipped } = openShop({ keyOf: ofTheFlow })
    await fork(bench)
    expect(shipped).toEqual([{ qty: 1000, paid: 1 }])
  })

  it('charges once if the same answers arrive twice', async () => {
    const { bench, provider } = openShop({})
    const call = bench.tool('order')
    await call.next()
    await call.loseReply({ qty: { qty: 5 } })
    await call.otherInstance().next({ qty: { qty: 5 } })
    expect([...provider.charges.values()]).toEqual([5])
  })

  it('B8 refuses the second branch on a tool with once', async () => {
    const bench = createBench((options) => {
      const server = createServer({ name: 'shop', version: '1', ...options })
      server.tool('order', { once: true }, async (_args, ctx) => {
        const { qty } = await ctx.ask('qty', QTY)
        return ctx.effect('charge', () => `Charged ${qty}.`)
      })
      return server
    })
    const call = bench.tool('order')
    await call.next()
    const { state } = call
    expect(await call.next({ qty: { qty: 1 } })).toMatchObject({ text: 'Charged 1.' })
    const other = bench.tool('order')
    await other.next()
    other.state = state
    expect(await other.next({ qty: { qty: 1000 } })).toMatchObject({ kind: 'error' })
  })
})
