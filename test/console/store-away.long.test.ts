/** `rondo console --store` while PostgreSQL is away, and after it has come back. */

import { expect, it } from 'vitest'
import { openStoreDesk } from '../../packages/cli/src/console/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { claimNew } from '../support/store/store-harness.ts'

describePostgres('the console of a PostgreSQL database', () => {
  it('says that the database is away, and finds it again', async () => {
    const server = await startPostgres({ fsync: false })
    const database = createPostgresDatabase(server)
    const schema = database.address.kind === 'postgres' ? database.address.schema : ''
    const store = database.open()
    const { id } = (await claimNew(store)).fence
    await store.close()
    const place = { word: server.connectionString, cwd: '/', schema }
    const options = { place, keys: () => undefined, content: false, who: 'ann', now: Date.now }
    const { api } = await openStoreDesk(options)
    const call = async (at: string, body: object): Promise<object> =>
      api.get(at)?.(body) ?? Promise.reject(new Error(`The console has no ${at}`))
    const both = (): Promise<PromiseSettledResult<object>[]> =>
      Promise.allSettled([
        call('POST /api/list', {}),
        call('POST /api/act', { action: 'cancel', subject: id }),
      ])
    await server.crash()
    const reason = { status: 503, message: expect.stringContaining('Cannot read') }
    expect(await both()).toMatchObject([{ reason }, { reason }])
    await expect(openStoreDesk(options)).rejects.toThrow('Cannot read')
    await server.start()
    expect(await both()).toMatchObject([{ value: { tasks: [{ id }] } }, { value: { outcome: 'done' } }])
    await database.close()
    await server.stop()
  })
})
