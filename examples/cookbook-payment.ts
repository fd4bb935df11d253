import { createApprovals, type LoginFunction } from '@rondo/approvals'
import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

const LIMIT_CENTS = 100_000
const MEMBERS: Record<string, string[]> = { finance: ['ann', 'bob', 'carl'], board: ['dora'] }

export interface Bank {
  pay(to: string, cents: number, options: { idempotencyKey: string }): Promise<string>
}

/** Pays small amounts at once. Two people of finance approve larger ones; after a day the board may, too. */
export function payments(bank: Bank, login: LoginFunction, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'payments', version: '1.0.0', ...options })
  const input = z.object({ to: z.string(), cents: z.int().positive() })
  server.tool('pay', { input, task: 'always' }, async ({ to, cents }, ctx) => {
    if (cents > LIMIT_CENTS) {
      await ctx.approve('pay', {
        from: 'finance',
        message: `Pay ${cents / 100} € to ${to}?`,
        details: { to, cents },
        quorum: 2,
        within: '5 days',
        escalate: { after: '1 day', to: 'board' },
      })
    }
    const receipt = await ctx.effect('pay', ({ key }) => bank.pay(to, cents, { idempotencyKey: key }))
    return `Paid ${cents / 100} € to ${to}: ${receipt}.`
  })
  const url = process.env.APPROVALS_URL ?? 'http://127.0.0.1:3000/approvals'
  server.use(createApprovals({ url, login, groups: (name) => MEMBERS[name] ?? [] }))
  return server
}
