/**
 * One process of the tests that kill calls which can be undone. Its tools reserve two rooms at DOWNSTREAM, ask, and book or release.
 * A message `{ method, at, when }` lets it kill itself with signal 9 at that call: of its store (`records.put`), or of DOWNSTREAM
 * (`reserve`, `release`). With FORGETFUL it keeps no intent: the negative control.
 */

import { createServer, ToolError } from '../../packages/rondo/dist/index.js'
import { createPostgresStore } from '../../packages/rondo/dist/postgres.js'
import { createSqliteStore } from '../../packages/rondo/dist/sqlite.js'

const { ADDRESS, DOWNSTREAM, FORGETFUL, KEYS } = process.env
const { kind, ...address } = JSON.parse(ADDRESS)
const store =
  kind === 'postgres'
    ? createPostgresStore({ ...address, maxConnections: 4, pollMs: 50 })
    : createSqliteStore(address)

let point
const counts = {}
process.on('message', (armed) => {
  point = armed
  for (const method of Object.keys(counts)) counts[method] = 0
  process.send({ kind: 'armed' })
})

/** Never returns. */
function die() {
  process.kill(process.pid, 'SIGKILL')
  return new Promise(() => {})
}

function deadly(method, call) {
  return async (...given) => {
    counts[method] = (counts[method] ?? 0) + 1
    const isHere = point?.method === method && counts[method] === point.at
    if (isHere && point.when === 'before') await die()
    const called = call(...given)
    if (isHere && point.when === 'during') await die()
    const result = await called
    if (isHere) await die()
    return result
  }
}

const deadlyPort = (name, methods) => ({
  ...store[name],
  ...Object.fromEntries(
    methods.map((method) => [
      method,
      deadly(`${name}.${method}`, (...given) => store[name][method](...given)),
    ]),
  ),
})

const records = deadlyPort('records', ['put', 'remove'])
const alarms = deadlyPort('alarms', ['set', 'ended'])
const server = createServer({
  name: 'hotel',
  version: '1.0.0',
  keys: KEYS,
  log: 'off',
  store: {
    ...store,
    tasks: { ...store.tasks, ...deadlyPort('tasks', ['create', 'append', 'park', 'settle', 'cancel']) },
    once: deadlyPort('once', ['claim', 'settle']),
    records: FORGETFUL ? { ...records, put: async () => 'stored' } : records,
    alarms: FORGETFUL ? { ...alarms, set: async () => true } : alarms,
  },
  limits: { flowTtlMs: 4_000 },
  tasks: { leaseMs: 400, concurrency: 8 },
})

const post = async (body) => {
  await fetch(DOWNSTREAM, { method: 'POST', body: JSON.stringify(body) })
}
const reserve = deadly('reserve', post)
const release = deadly('release', post)

async function trip({ order, ending }, ctx) {
  for (const room of ['one', 'two'])
    await ctx.effect(room, ({ key }) => reserve({ order, room, key }), {
      undo: (_result, { key, effectKey }) => release({ order, room, key: effectKey, undoneWith: key }),
    })
  const sure = await ctx.confirm('sure', 'Book both?')
  if (ending === 'fails') throw new ToolError('Sold out.')
  if (sure) return 'Booked.'
  await ctx.undo()
  return 'Released.'
}

server.tool('rounds', { task: 'never' }, trip)
server.tool('task', { task: 'always' }, trip)
const { port } = await server.listen({ port: 0, signals: false })
process.send({ port })
process.on('disconnect', () => process.exit(0))
