/**
 * The server that `npm run walk` measures: the README's tool over `node:http`, from compiled sources at the URL in the first
 * argument. It records between the messages `start` and `take`.
 */

import { Session } from 'node:inspector/promises'
import { z } from 'zod'

const [home = '', carrier = 'token'] = process.argv.slice(2)
const { createServer, generateKey } = await import(`${home}index.js`)
const { createMemoryStore } = await import(`${home}store/memory/store.js`)

const server = createServer({
  name: 'tracker',
  version: '1.0.0',
  keys: generateKey('walk'),
  log: 'off',
  ...(carrier === 'task' ? { store: createMemoryStore() } : {}),
})
server.tool(
  'resolve_bug',
  {
    description: 'Resolve a bug',
    input: z.object({ id: z.int() }),
    ...(carrier === 'task' ? { task: 'always' } : {}),
  },
  async ({ id }, ctx) => {
    const { resolution } = await ctx.ask('resolution', {
      message: `How was bug #${id} resolved?`,
      schema: z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) }),
    })
    await ctx.effect('save', () => {})
    return `Bug #${id} resolved as ${resolution}.`
  },
)

/** Files in the order of entry; a file is repeated only after another one. */
const entered = []
const session = new Session()
session.connect()
await session.post('Profiler.enable')

process.on('message', async ({ kind }) => {
  if (kind === 'start') {
    // What the last call left to do must not be counted.
    for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve))
    globalThis.__enter = (name) => {
      if (entered.at(-1) !== name) entered.push(name)
    }
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
    // The first report covers what ran before: taking it resets the counters.
    await session.post('Profiler.takePreciseCoverage')
    process.send('started')
  } else {
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const instrumented = entered.length > 0
    process.send(instrumented ? entered : result.filter(({ url }) => url.startsWith(home)))
  }
})

const { url } = await server.listen({ port: 0 })
process.send({ url: String(url) })
