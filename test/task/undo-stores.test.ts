/** Undo on every store, by its own clock: a call that ends well, one that is cancelled, and one that nobody continues. */

import { createServer, type Server, type Store } from 'rondo'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { type OpenHandle, shareMemory, sharePostgres, shareSqlite } from '../support/fleet-stores.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='

interface Hotel {
  readonly server: Server
  readonly reserved: Set<string>
  readonly undone: string[]
}

function hotel(store: Store, task: 'never' | 'always', flowTtlMs = 86_400_000): Hotel {
  const reserved = new Set<string>()
  const undone: string[] = []
  const server = createServer({ name: 'hotel', version: '1', keys, log: 'off', store, limits: { flowTtlMs } })
  server.tool('trip', { task }, async (_args, ctx) => {
    for (const room of ['one', 'two'])
      await ctx.effect(room, ({ key }) => void reserved.add(key), {
        undo(_result, { effectKey }) {
          undone.push(room)
          reserved.delete(effectKey)
        },
      })
    return (await ctx.confirm('sure', 'Book?')) ? 'Booked.' : 'Not booked.'
  })
  onTestFinished(() => server.close())
  return { server, reserved, undone }
}

const trip = { name: 'trip', arguments: {} }
const yes = { sure: { action: 'accept', content: { confirm: true } } }

async function untilAsked(server: Server): Promise<string> {
  let { result } = await send(server, 'tools/call', trip)
  while (result?.resultType === 'input_required' && result.inputRequests === undefined)
    result = (await send(server, 'tools/call', { ...trip, requestState: result.requestState })).result
  return String(result?.requestState)
}

describe('undo on a store in memory', () => describeUndo(shareMemory))
describe('undo on a SQLite file', () => describeUndo(shareSqlite))
describePostgres('undo on a PostgreSQL database', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())
  describeUndo(() => sharePostgres(server, { pollMs: 50 }))
})

function describeUndo(share: () => Promise<OpenHandle>): void {
  it('keeps what ran if the call ends well', async () => {
    const { server, reserved, undone } = hotel((await share())(), 'never')
    const requestState = await untilAsked(server)
    const { result } = await send(server, 'tools/call', { ...trip, requestState, inputResponses: yes })
    expect(result).toMatchObject({ content: [{ text: 'Booked.' }] })
    expect([reserved.size, undone]).toEqual([2, []])
  })

  it('takes back what a cancelled task did, on another instance than the one that ran it', async () => {
    const open = await share()
    const { server, reserved, undone } = hotel(open(), 'always')
    const { result } = await send(server, 'tools/call', trip)
    const taskId = String(result?.taskId)
    await settled(server, taskId)
    expect(reserved.size).toBe(2)
    const other = hotel(open(), 'always')
    await send(other.server, 'tasks/cancel', { taskId })
    await expect.poll(() => [...undone, ...other.undone], { timeout: 10_000 }).toEqual(['two', 'one'])
  })

  it('takes back what ran if nobody continues the call', async () => {
    const { server, reserved, undone } = hotel((await share())(), 'never', 1_500)
    await untilAsked(server)
    expect(reserved.size).toBe(2)
    await expect.poll(() => undone, { timeout: 15_000, interval: 50 }).toEqual(['two', 'one'])
    expect(reserved.size).toBe(0)
  })
}

it('refuses an effect with undo on a store without records, before it begins', async () => {
  const { records: _, ...store } = createMemoryStore()
  const { server, reserved } = hotel(store as Store, 'never')
  let { result } = await send(server, 'tools/call', trip)
  if (result?.resultType === 'input_required')
    result = (await send(server, 'tools/call', { ...trip, requestState: result.requestState })).result
  expect(result).toMatchObject({ isError: true })
  expect(reserved.size).toBe(0)
})
