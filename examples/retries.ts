import { createServer, Fatal, RetryLater, type ServerOptions } from 'rondo'
import { z } from 'zod'

/** A payment provider: `status` is that of its HTTP response. */
export type Charge = (
  cents: number,
  options: { idempotencyKey: string; signal: AbortSignal },
) => Promise<{ status: number; retryAfter?: string; receipt?: string }>

/** Every attempt has the same key, so a charge whose response was lost is not made twice. */
export function till(charge: Charge, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'till', version: '1.0.0', ...options })
  server.tool('pay', { input: z.object({ cents: z.int() }), task: 'auto' }, async ({ cents }, ctx) => {
    const receipt = await ctx.effect(
      'charge',
      async ({ key, signal }) => {
        const response = await charge(cents, { idempotencyKey: key, signal })
        if (response.status === 429) throw new RetryLater(`${response.retryAfter} s`)
        if (response.status === 402) throw new Fatal('The card was refused')
        if (response.receipt === undefined) throw new Error(`Status ${response.status}`)
        return response.receipt
      },
      { retry: { times: 5, delay: '2 s', factor: 2, maxDelay: '1 min' }, timeout: '30 s' },
    )
    return `Paid, receipt ${receipt}.`
  })
  return server
}
