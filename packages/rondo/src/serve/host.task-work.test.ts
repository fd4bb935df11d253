import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { until } from '../../../../test/support/store/store-harness.ts'
import { send, settled } from '../../../../test/support/task-client.ts'
import type { LogEvent } from '../log/event.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import { createSqliteStore } from '../store/sqlite/store.ts'
import type { ServerOptions } from './options.ts'
import { createServer } from './server.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const ends: (() => Promise<void>)[] = []

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

function start(options: Partial<ServerOptions>) {
  const logged: LogEvent[] = []
  const server = createServer({
    name: 'work',
    version: '1',
    keys,
    log: (event) => logged.push(event),
    ...options,
  })
  server.tool('always', { task: 'always' }, () => 'done')
  ends.push(() => server.close())
  const warnings = () => logged.filter(({ event }) => event === 'warning')
  return { server, warnings }
}

describe('the worker of a server', () => {
  it('E9 starts while its store cannot be reached, logs that, and works once it can', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rondo-work-'))
    const inTheWay = join(folder, 'data')
    await writeFile(inTheWay, '')
    const store = createSqliteStore({ file: join(inTheWay, 'tasks.db') })
    ends.push(() => rm(folder, { recursive: true }))
    ends.push(() => store.close())
    const { server, warnings } = start({ store })
    expect((await send(server, 'tools/call', { name: 'always' })).error?.code).toBe(-32000)
    await until('a warning', () => warnings()[0])
    await rm(inTheWay)
    const { result } = await send(server, 'tools/call', { name: 'always' })
    expect(await settled(server, String(result?.taskId))).toMatchObject({ status: 'completed' })
  })

  it('is not stopped by a listener that throws', async () => {
    const { server, warnings } = start({
      store: createMemoryStore(),
      tasks: {
        onEvent: () => {
          throw new Error('a listener of the operator')
        },
      },
    })
    for (let i = 0; i < 3; i++) {
      const { result } = await send(server, 'tools/call', { name: 'always' })
      expect(await settled(server, String(result?.taskId))).toMatchObject({ status: 'completed' })
    }
    expect(warnings().length).toBeGreaterThan(0)
  })
})
