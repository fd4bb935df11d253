/** A database that goes away and comes back, as clients and operators see it. */

import { createServer, type LogEvent } from 'rondo'
import { createPostgresStore } from 'rondo/postgres'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { send } from '../support/task-client.ts'

describePostgres('PostgreSQL that is away', () => {
  let database: TestPostgres
  beforeAll(async () => {
    database = await startPostgres({ fsync: false })
  })
  afterAll(() => database.stop())

  /** A server whose clock the test drives. Its heartbeat is due before the store gives up. */
  function start() {
    const { connectionString } = database
    const store = createPostgresStore({ connectionString, retryMs: 3_000, listen: false })
    let entered = () => {}
    const create: Store['tasks']['create'] = (...given) => {
      const creating = store.tasks.create(...given)
      entered()
      return creating
    }
    const logged: LogEvent[] = []
    let at = 1_800_000_000_000
    const server = createServer({
      name: 'away',
      version: '1',
      keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
      store: { ...store, tasks: { ...store.tasks, create } },
      tasks: { concurrency: 0 },
      log: (event) => void logged.push(event),
      now: () => at,
      heartbeatMs: 1_000,
    })
    server.tool('work', { task: 'always' }, () => 'done')
    return {
      server,
      /** The status of the response. */
      async call() {
        let status = 0
        const fetch: typeof server.fetch = async (request) => {
          const response = await server.fetch(request)
          status = response.status
          return response
        }
        await send({ fetch }, 'tools/call', { name: 'work' })
        return status
      },
      /** Resolves when so many calls wait for the store. */
      begun: (count: number) =>
        new Promise<void>((resolve) => {
          let missing = count
          entered = () => {
            missing -= 1
            if (missing === 0) resolve()
          }
        }),
      pass(ms: number) {
        at += ms
      },
      warnings: () => logged.filter(({ event }) => event === 'warning'),
      async close() {
        await server.close()
        await store.close()
      },
    }
  }

  it('R11 a store that is away is a 503 although a heartbeat was due, and two lines in the log', async () => {
    const { call, begun, pass, warnings, close } = start()
    expect(await call()).toBe(200)
    await database.crash()
    const entered = begun(3)
    const calls = [call(), call(), call()]
    await entered
    pass(3_000)
    const statuses = await Promise.all(calls)
    expect(statuses).toEqual([503, 503, 503])
    expect(warnings()).toMatchObject([
      { message: 'A request failed because the store failed', error: { code: 'STORE_UNAVAILABLE' } },
    ])
    await database.start()
    expect(await call()).toBe(200)
    expect(warnings().slice(1)).toMatchObject([
      {
        message: expect.stringMatching(/^The store works again after [\d.]+ s; 3 requests failed meanwhile$/),
      },
    ])
    await close()
  })
})
