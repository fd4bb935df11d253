/**
 * One process of the tests that kill: a worker, or with ROLE=pages the pages alone. Its tool asks Ann, then posts to DOWNSTREAM
 * under the key of its effect. A message `{ method, at, when }` lets it kill itself with signal 9 at that call of the store: of
 * its part for approvals, or of that for tasks (`tasks.append`). WEAK makes it wrong on purpose: the negative controls.
 */

import { createApprovals } from '../../packages/approvals/dist/index.js'
import { createServer } from '../../packages/rondo/dist/index.js'
import { createPostgresStore } from '../../packages/rondo/dist/postgres.js'
import { createSqliteStore } from '../../packages/rondo/dist/sqlite.js'

const { ROLE, ADDRESS, DOWNSTREAM, WEAK, KEYS } = process.env
const ISSUER = 'https://login.example'
const { kind, ...address } = JSON.parse(ADDRESS)
const store =
  kind === 'postgres' ? createPostgresStore({ ...address, maxConnections: 4 }) : createSqliteStore(address)

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

const { put, get, list, claim } = store.approvals
let lost = false
const approvals = {
  ...store.approvals,
  get: deadly('get', get),
  list: deadly('list', list),
  // A job of a process that died is taken over soon.
  claim: deadly('claim', (tenant, leaseMs, limit) => claim(tenant, Math.min(leaseMs, 400), limit)),
  put: deadly('put', async (write) => {
    if (WEAK === 'forgetful' && ROLE === 'pages' && write.version > 0 && !lost) {
      lost = true
      return { kind: 'stored' }
    }
    const entries = WEAK === 'doubling' ? (write.entries ?? []).flatMap((one) => [one, one]) : write.entries
    return put({ ...write, entries })
  }),
}

const tasks = Object.fromEntries(
  ['append', 'park', 'settle', 'claim', 'deliverHook'].map((name) => [
    name,
    deadly(`tasks.${name}`, (...given) => store.tasks[name](...given)),
  ]),
)

const server = createServer({
  name: 'killed',
  version: '1.0.0',
  keys: KEYS,
  log: 'off',
  store: { ...store, approvals, tasks: { ...store.tasks, ...tasks } },
  authenticate: () => ({ issuer: ISSUER, subject: 'erin' }),
  tasks: { leaseMs: 1_000, concurrency: ROLE === 'pages' ? 0 : 8 },
})

const post = (body) =>
  fetch(DOWNSTREAM, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
  })

const input = { type: 'object', properties: { order: { type: 'string' } }, required: ['order'] }
server.tool('deploy', { input, task: 'always', taskPollMs: 20 }, async ({ order }, ctx) => {
  if (WEAK === 'rash') await ctx.effect('rash', ({ key }) => post({ order, key }).then(() => null))
  await ctx.approve('deploy', { from: 'managers', message: `Deploy ${order}?`, within: '1 hour' })
  await ctx.effect('deploy', ({ key }) => post({ order, key }).then(() => null))
  return `Deployed ${order}.`
})
server.use(
  createApprovals({
    url: 'http://127.0.0.1/approvals',
    login: () => ({ issuer: ISSUER, subject: 'ann', name: 'Ann' }),
    groups: () => ['ann'],
    pollMs: 50,
  }),
)

const { port } = await server.listen({ port: 0 })
process.send({ kind: 'listening', port })
process.on('disconnect', () => process.exit(0))
