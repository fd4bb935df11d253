import { createServer, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

/** A tool of which one call runs for each account at a time, on however many instances. */
export function ledger(options: Partial<ServerOptions>) {
  const server = createServer({ name: 'ledger', version: '1.0.0', ...options })
  server.tool(
    'settle_account',
    {
      input: z.object({ account: z.string(), month: z.string() }),
      task: 'auto',
      concurrency: { key: ({ account }) => account, limit: 1, otherwise: 'queue' },
      dedupe: ({ account, month }) => `${account} ${month}`,
    },
    async ({ account, month }, ctx) => {
      const open = await ctx.step('add up', () => 1_200)
      if (!(await ctx.confirm('sure', `Settle ${open} of ${account}?`))) return 'Nothing was settled.'
      await ctx.effect('settle', async ({ key }) => `settled under ${key}`)
      return `Settled ${month} of ${account}.`
    },
  )
  return server
}

/** For `npx rondo console examples/one-at-a-time.ts`. */
export default (options?: Partial<ServerOptions>) =>
  ledger({ store: createSqliteStore({ file: 'ledger.db' }), ...options })
