/** Instances whose clocks disagree by minutes, on PostgreSQL: the database's clock decides, and no task notices. */

import { createServer, type Server } from 'rondo'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { EngineEvent } from '../../packages/rondo/src/store/task-engine.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { follow, send } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const MINUTE = 60_000

describePostgres('clocks that disagree', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await startPostgres({ fsync: false })
  })
  afterAll(() => postgres.stop())

  it('E9 different clocks lose no task and fail none, even if they differ by more than the TTL of a task', async () => {
    const database = createPostgresDatabase(postgres)
    const events: EngineEvent[] = []
    const start = (skew: number): Server => {
      const server = createServer({
        name: 'clocks',
        version: '1',
        keys,
        log: 'off',
        store: database.open(),
        now: () => Date.now() + skew,
        tasks: { leaseMs: 10_000, onEvent: (event) => void events.push(event) },
      })
      server.tool('work', { task: 'always', taskTtlMs: MINUTE }, async (_args, ctx) => {
        await ctx.step('first', () => ctx.now())
        if (!(await ctx.confirm('sure', 'Go on?'))) return 'kept'
        return ctx.effect('pay', () => 'paid', { once: true })
      })
      return server
    }
    const servers = [start(0), start(3 * MINUTE), start(-3 * MINUTE)]
    const server = (i: number) => servers[i % servers.length] as Server
    const run = async (_: unknown, i: number) => {
      const { result } = await send(server(i), 'tools/call', { name: 'work' })
      return follow(server(i + 1), String(result?.taskId), { sure: { confirm: true } })
    }
    const ends = await Promise.all(Array.from({ length: 30 }, run))
    for (const end of ends) expect(end).toMatchObject({ result: { content: [{ text: 'paid' }] } })
    expect(events.filter(({ kind }) => kind === 'retry' || kind === 'gave-up')).toEqual([])
    await Promise.all(servers.map((one) => one.close()))
    await database.close()
  })
})
