/** Questions of a task that are open while its work goes on (G4). */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { until } from '../support/store/store-harness.ts'
import { follow, send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const schema = {
  type: 'object',
  properties: { n: { type: 'integer', minimum: 1 } },
  required: ['n'],
} as const
const servers: Server[] = []
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

/** The steps that a handler did, and the work that the test releases. */
interface Yard {
  readonly done: string[]
  released: boolean
}

const newYard = (): Yard => ({ done: [], released: false })

function start(yard: Yard, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'yard',
    version: '1',
    keys,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  const long = async () => {
    yard.done.push('long begins')
    await until('the release', () => yard.released, 90_000)
    return 'long'
  }
  server.tool('work', { task: 'auto' }, async (_args, ctx) => {
    const [work, answer] = await Promise.all([
      ctx.step('long', long),
      (async () => {
        const { n } = (await ctx.ask('n', { message: 'How many?', schema })) as { n: number }
        await ctx.effect('use', ({ key }) => void yard.done.push(`use ${n} ${key}`))
        return n
      })(),
    ])
    return `${work} ${answer}`
  })
  servers.push(server)
  return server
}

async function begin(server: Server): Promise<string> {
  const { result } = await send(server, 'tools/call', { name: 'work', arguments: {} })
  return String(result?.taskId)
}
const answer = (server: Server, taskId: string, key: string, n: number) =>
  send(server, 'tasks/update', {
    taskId,
    inputResponses: { [key]: { action: 'accept', content: { n } } },
  })
const textOf = (ended: Record<string, unknown>): unknown =>
  (ended.result as { content: { text: string }[] }).content[0]?.text
const effects = (yard: Yard): string[] => yard.done.filter((line) => line.startsWith('use'))

describe('a question beside work', () => {
  it('G4 is visible while a step runs, and its response is taken without waiting for the step', async () => {
    const yard = newYard()
    const server = start(yard)
    const id = await begin(server)
    const asked = await settled(server, id)
    expect(asked).toMatchObject({ status: 'input_required', inputRequests: { n: {} } })
    await answer(server, id, 'n', 3)
    await until('the effect', () => effects(yard).length > 0, 60_000)
    expect(yard.released).toBe(false)
    expect((await send(server, 'tasks/get', { taskId: id })).result).toMatchObject({ status: 'working' })
    yard.released = true
    expect(textOf(await settled(server, id))).toBe('long 3')
    expect(yard.done.filter((line) => line === 'long begins')).toHaveLength(1)
  })

  it('G4 R10 has the effect keys of a call whose response comes after the work', async () => {
    const randomId = () => 'the same flow'
    const lines: string[][] = []
    for (const first of ['answer', 'work']) {
      const yard = newYard()
      const server = start(yard, { randomId, dev: true })
      const id = await begin(server)
      await settled(server, id)
      if (first === 'work') yard.released = true
      if (first === 'work') await until('a parked task', async () => (await settled(server, id)).status)
      await answer(server, id, 'n', 3)
      if (first === 'answer') await until('the effect', () => effects(yard).length > 0, 60_000)
      yard.released = true
      expect(textOf(await settled(server, id))).toBe('long 3')
      lines.push(effects(yard))
    }
    expect(lines[0]).toEqual(lines[1])
  })

  it('G4 is asked again under another key if its response does not fit, still beside the work', async () => {
    const yard = newYard()
    const server = start(yard)
    const id = await begin(server)
    await settled(server, id)
    await answer(server, id, 'n', 0)
    const again = async () => {
      const { result } = await send(server, 'tasks/get', { taskId: id })
      const open = Object.keys((result?.inputRequests ?? {}) as object)
      return open.includes('n~2') ? open : undefined
    }
    expect(await until('the question again', again, 60_000)).toEqual(['n~2'])
    await answer(server, id, 'n', 7)
    expect(yard.released).toBe(false)
    await answer(server, id, 'n~2', 8)
    await until('the effect', () => effects(yard).length > 0, 60_000)
    yard.released = true
    expect(textOf(await settled(server, id))).toBe('long 8')
  })

  it('G4 E9 is found by the next worker, with its response, if the process stops meanwhile', async () => {
    const database = await createSqliteDatabase()
    const yard = newYard()
    const first = start(yard, { store: database.open(), tasks: { leaseMs: 1000 } })
    const id = await begin(first)
    await settled(first, id)
    const front = start(newYard(), { store: database.open(), tasks: { concurrency: 0 } })
    const closing = first.close()
    await answer(front, id, 'n', 4)
    yard.released = true
    await closing
    const second = start(yard, { store: database.open() })
    const ended = await follow(second, id, {})
    expect(textOf(ended)).toBe('long 4')
    expect(effects(yard)).toHaveLength(1)
    await Promise.all(servers.splice(0).map((server) => server.close()))
    await database.close()
  })

  it('G4 takes a response on another instance than the one that works', async () => {
    const database = await createSqliteDatabase()
    const yard = newYard()
    const worker = start(yard, { store: database.open() })
    const front = start(newYard(), { store: database.open(), tasks: { concurrency: 0 } })
    const id = await begin(worker)
    expect(await settled(front, id)).toMatchObject({ status: 'input_required' })
    await answer(front, id, 'n', 5)
    await until('the effect', () => effects(yard).length > 0, 60_000)
    expect(yard.released).toBe(false)
    yard.released = true
    expect(textOf(await settled(front, id))).toBe('long 5')
    await Promise.all(servers.splice(0).map((server) => server.close()))
    await database.close()
  })
})
