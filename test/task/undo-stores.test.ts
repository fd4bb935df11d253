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
  it('M1 keeps what ran if the call ends well', async () => {
    const { server, reserved, undone } = hotel((await share())(), 'never')
    const requestState = await untilAsked(server)
    const { result } = await send(server, 'tools/call', { ...trip, requestState, inputResponses: yes })
    expect(result).toMatchObject({ content: [{ text: 'Booked.' }] })
    expect([reserved.size, undone]).toEqual([2, []])
  })

  it('M1 takes back what a cancelled task did, on another instance than the one that ran it', async () => {
    const open = await share()
    const { server, reserved, undone } = hotel(open(), 'always')
    const { result } = await send(server, 'tools/call', trip)
    const taskId = String(result?.taskId)
    await settled(server, taskId)
    expect(reserved.size).toBe(2)
    const other = hotel(open(), 'always')
    await send(other.server, 'tasks/cancel', { taskId })
    await expect.poll(() => [...undone, ...other.undone]).toEqual(['two', 'one'])
  })

  it.each(['cancel', 'fail'] as const)(
    'M1 takes back what a task did at once if an operator ends it in the store (%s)',
    async (kind) => {
      const open = await share()
      const { server, reserved, undone } = hotel(open(), 'always')
      const { result } = await send(server, 'tools/call', trip)
      const taskId = String(result?.taskId)
      await settled(server, taskId)
      expect(reserved.size).toBe(2)
      const operator = open()
      onTestFinished(() => operator.close())
      expect(await operator.operator?.act({ kind, id: taskId, keepMs: 60_000 }, 'ann')).toBe('done')
      await expect.poll(() => undone).toEqual(['two', 'one'])
    },
  )

  it('M1 takes back what a task did if a cancellation wins while it ends well, and the process dies', async () => {
    const open = await share()
    const dying = open()
    const life = { dead: false, cancelled: '' }
    const tasks: Store['tasks'] = {
      ...dying.tasks,
      claim: async (...given) => (life.dead ? [] : dying.tasks.claim(...given)),
      async settle(fence, ending) {
        const [task] = await dying.tasks.list({ id: fence.id })
        if (task?.owner.principal.startsWith('undo ')) return dying.tasks.settle(fence, ending)
        // Before the cancellation, which makes the alarm due.
        life.dead = true
        life.cancelled = await dying.tasks.cancel(fence.id, task?.owner ?? { tenant: '', principal: '' })
        return false
      },
    }
    const { server, reserved, undone } = hotel({ ...dying, tasks }, 'always')
    const { result } = await send(server, 'tools/call', trip)
    const taskId = String(result?.taskId)
    await settled(server, taskId)
    await send(server, 'tasks/update', { taskId, inputResponses: yes })
    await expect.poll(() => life).toEqual({ dead: true, cancelled: 'cancelled' })
    expect([reserved.size, undone]).toEqual([2, []])
    const next = hotel(open(), 'always')
    await send(next.server, 'server/discover', {})
    await expect.poll(() => next.undone).toEqual(['two', 'one'])
  })

  it('M1 takes back what ran if nobody continues the call', async () => {
    // Long enough to get to the question on a busy machine.
    const store = (await share())()
    await store.ready()
    const { server, reserved, undone } = hotel(store, 'never', 4_000)
    await untilAsked(server)
    expect(reserved.size).toBe(2)
    await expect.poll(() => undone, { interval: 50 }).toEqual(['two', 'one'])
    expect(reserved.size).toBe(0)
  })
}

it('M1 refuses an effect with undo on a store without records, before it begins', async () => {
  const { records: _, ...store } = createMemoryStore()
  const { server, reserved } = hotel(store as Store, 'never')
  let { result } = await send(server, 'tools/call', trip)
  if (result?.resultType === 'input_required')
    result = (await send(server, 'tools/call', { ...trip, requestState: result.requestState })).result
  expect(result).toMatchObject({ isError: true })
  expect(reserved.size).toBe(0)
})
