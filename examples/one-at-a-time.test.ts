import { connect } from 'rondo/client'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../packages/rondo/src/store/memory/store.ts'
import { ledger } from './one-at-a-time.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

describe('one at a time', () => {
  const args = { account: 'A-1', month: '2026-10' }

  it('settles an account after a confirmation', async () => {
    const bench = createBench((options) => ledger({ ...options, store: createMemoryStore() }))
    const done = await bench.tool('settle_account', args).run({ sure: { confirm: true } })
    expect(JSON.stringify(done)).toContain('Settled 2026-10 of A-1.')
  })

  it('refuses a second call of the account where the client cannot follow a task that waits', async () => {
    const server = ledger({ store: createMemoryStore(), log: 'off' })
    closing.push(() => server.close())
    const answers = { elicitation: async () => ({ action: 'accept' as const, content: { confirm: true } }) }
    const client = await connect(server, { tasks: false, answers })
    closing.push(() => client.close())
    const asked = connect(server, {
      tasks: false,
      answers: {
        elicitation: async () => {
          await expect(client.callTool('settle_account', args)).rejects.toThrow('as many calls as it allows')
          const other = await client.callTool('settle_account', { ...args, account: 'B-2' })
          expect(JSON.stringify(other)).toContain('Settled 2026-10 of B-2.')
          return { action: 'accept', content: { confirm: true } }
        },
      },
    })
    const first = await asked
    closing.push(() => first.close())
    expect(JSON.stringify(await first.callTool('settle_account', args))).toContain('Settled 2026-10 of A-1.')
  })
})
