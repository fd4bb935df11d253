import { createServer, type Server, type ServerOptions } from 'rondo'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import type { Database } from '../support/store/store-harness.ts'
import { follow, send } from '../support/task-client.ts'
import { effectsUnderToken } from './effects-under-token.ts'
import { createWorld, type Scenario, scenarios, taskScenarios, type World } from './scenario.ts'

const servers: Server[] = []
const randomId = () => 'the same in every carrier'

function instance(
  scenario: Scenario,
  world: World,
  store: Store,
  options: Partial<ServerOptions> = {},
): Server {
  const server = createServer({
    name: 'scenarios',
    version: '1.0.0',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    dev: true,
    store,
    randomId,
    ...options,
  })
  // The tool of the scenario, run as a task if the client supports tasks.
  const tool: Server['tool'] = (name, definition, handler) =>
    server.tool(name, { ...definition, task: 'auto' }, handler)
  scenario.declare({ ...server, tool }, world)
  servers.push(server)
  return server
}

const tools = [...scenarios.filter(({ method }) => method === 'tools/call'), ...taskScenarios]

/** Every tool of the scenarios as a task, in databases of one kind. */
function describeTasks(create: () => Promise<Pick<Database, 'open' | 'close'>>): void {
  let database: Pick<Database, 'open' | 'close'>
  beforeEach(async () => {
    database = await create()
  })
  afterEach(async () => {
    await Promise.all(servers.splice(0).map((server) => server.close()))
    await database.close()
  })

  it.each(tools)(
    'R10 P20 a task has the result and the effect keys of the rounds: $name',
    async (scenario) => {
      const world = createWorld()
      const server = instance(scenario, world, database.open())
      const created = await send(server, 'tools/call', { name: scenario.target, arguments: scenario.args })
      expect(created.result).toMatchObject({ resultType: 'task', status: 'working' })
      const ended = await follow(server, String(created.result?.taskId), scenario.script)
      expect(ended).toMatchObject({
        status: 'completed',
        result: { resultType: 'complete', content: [{ text: scenario.text }] },
      })
      expect((ended.result as { isError?: boolean }).isError ?? false).toBe(scenario.isError ?? false)
      expect(world.effects).toEqual(await effectsUnderToken(scenario, randomId))
      expect(world.effects.map(({ name }) => name)).toEqual(scenario.effects)
    },
  )

  it.each(tools)('E2 E9 a task continues on another instance after a restart: $name', async (scenario) => {
    const world = createWorld()
    const first = instance(scenario, world, database.open())
    const created = await send(first, 'tools/call', { name: scenario.target, arguments: scenario.args })
    await first.close()
    const second = instance(scenario, world, database.open())
    expect(await follow(second, String(created.result?.taskId), scenario.script)).toMatchObject({
      status: 'completed',
      result: { content: [{ text: scenario.text }] },
    })
  })
}

describe('tasks in memory', () => {
  describeTasks(async () => {
    const store = createMemoryStore()
    return { open: () => store, close: store.close }
  })
})

describe('tasks on SQLite', () => {
  describeTasks(createSqliteDatabase)
})

describePostgres('tasks on PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  describeTasks(async () => createPostgresDatabase(server))
})
