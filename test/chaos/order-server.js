/**
 * One instance of the fleet that the chaos tests kill. Orders reserve, ask twice, and charge; their effects go to
 * the downstream at DOWNSTREAM, with the effect's key. `order_unsafe` does the same without the checkpoint
 * before its first effect: the negative control. With STORE, a file or the address of a database, there is `order_task`,
 * which does it as a task. `order_older` asks a client of an earlier era in three ways; with HANDOVER=off the instances do
 * not hand its answers over.
 */

import { request } from 'node:http'
import { createServer } from '../../packages/rondo/dist/index.js'
import { createPostgresStore } from '../../packages/rondo/dist/postgres.js'
import { createSqliteStore } from '../../packages/rondo/dist/sqlite.js'

const { DOWNSTREAM, RELEASE = '1', STORE, TRUSTING, HANDOVER } = process.env

/** With TRUSTING every task counts as known to its owner: the negative control for lost replies that create tasks. */
function openStore() {
  const opened = STORE.startsWith('postgres')
    ? createPostgresStore({ connectionString: STORE, maxConnections: 4 })
    : createSqliteStore({ file: STORE })
  const store = HANDOVER === 'off' ? { ...opened, records: undefined, bus: undefined } : opened
  if (TRUSTING === undefined) return store
  const create = (task, ...rest) => store.tasks.create({ ...task, known: true }, ...rest)
  return { ...store, tasks: { ...store.tasks, create } }
}

function post(body) {
  return new Promise((resolve, reject) => {
    const req = request(
      DOWNSTREAM,
      { method: 'POST', headers: { 'content-type': 'application/json' } },
      (res) => {
        res.resume().on('end', () => resolve(res.statusCode))
      },
    )
    req.on('error', reject).end(JSON.stringify(body))
  })
}

const text = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] }
const input = { type: 'object', properties: { order: { type: 'integer' } }, required: ['order'] }
const store = STORE === undefined ? undefined : openStore()
const tasks = { leaseMs: 2_000, maxOpen: 100_000 }
const server = createServer({
  name: 'orders',
  version: RELEASE,
  log: 'off',
  limits: { maxRounds: 64 },
  store,
  tasks,
})

async function rest(order, ctx) {
  const { value: address } = await ctx.ask('address', {
    message: `Where does order ${order} go?`,
    schema: text,
  })
  const sure = await ctx.confirm('sure', `Charge order ${order}?`)
  if (!sure) return 'not charged'
  await ctx.effect('charge', ({ key }) => post({ order, effect: 'charge', key, answer: address }))
  return `order ${order} goes to ${address}`
}

server.tool('order', { input, version: RELEASE }, async ({ order }, ctx) => {
  await ctx.effect('reserve', ({ key }) => post({ order, effect: 'reserve', key }))
  return rest(order, ctx)
})

server.tool('order_unsafe', { input }, async ({ order }, ctx) => {
  const key = ctx.uuid('reserve')
  await ctx.step('reserve', () => post({ order, effect: 'reserve', key }))
  return rest(order, ctx)
})

server.tool('order_older', { input }, async ({ order }, ctx) => {
  await ctx.effect('reserve', ({ key }) => post({ order, effect: 'reserve', key }))
  const { value: address } = await ctx.ask('address', {
    message: `Where does order ${order} go?`,
    schema: text,
  })
  const messages = [{ role: 'user', content: { type: 'text', text: `Is order ${order} near ${address}?` } }]
  const { content } = await ctx.sample('near', { messages, maxTokens: 10 })
  const roots = await ctx.roots()
  await ctx.effect('charge', ({ key }) => post({ order, effect: 'charge', key }))
  return `order ${order} goes to ${address}, ${content.text}, ${roots.length} root`
})

if (store) {
  server.tool('order_task', { input, task: 'always', taskPollMs: 20 }, async ({ order }, ctx) => {
    await ctx.effect('reserve', ({ key }) => post({ order, effect: 'reserve', key }))
    return rest(order, ctx)
  })
}

const { port } = await server.listen({ port: 0 })
process.send?.({ port })
process.on('disconnect', () => process.exit(0))
