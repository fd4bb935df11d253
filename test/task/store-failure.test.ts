/** A store that fails during a request: the client is told to retry, and the log says why. */

import { createServer, type LogEvent, RondoError } from 'rondo'
import { expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { send } from '../support/task-client.ts'

const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
const fails = () => Promise.reject(new RondoError('STORE_UNAVAILABLE', 'the database is down', { cause }))

function start(broken: (store: Store) => Store) {
  const logged: LogEvent[] = []
  const server = createServer({
    name: 'failing',
    version: '1',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    store: broken(createMemoryStore()),
    log: (event) => void logged.push(event),
  })
  server.tool('work', { task: 'always' }, () => 'done')
  server.tool('pay', {}, async (_args, ctx) => {
    await ctx.confirm('sure', 'Pay?')
    return ctx.effect('pay', () => 'paid', { once: true })
  })
  server.tool('redeem', { once: true }, (_args, ctx) => ctx.confirm('sure', 'Redeem?').then(String))
  const faults = () => logged.flatMap((event) => ('error' in event ? [event.error] : []))
  return { server, faults }
}

const down = { code: 'STORE_UNAVAILABLE', message: expect.stringContaining('the database is down'), cause }

it.each([
  [
    'tasks/get',
    { taskId: 'x'.repeat(22) },
    (store: Store) => ({ ...store, tasks: { ...store.tasks, get: fails } }),
  ],
  [
    'tools/call',
    { name: 'work' },
    (store: Store) => ({ ...store, tasks: { ...store.tasks, create: fails } }),
  ],
  ['tools/call', { name: 'redeem' }, (store: Store) => ({ ...store, once: { ...store.once, epoch: fails } })],
])('R11 a store failure is logged with its cause: %s %j', async (method, params, broken) => {
  const { server, faults } = start(broken)
  expect((await send(server, method, params)).error).toMatchObject({ code: -32000 })
  expect(faults()).toEqual([expect.objectContaining(down)])
  await server.close()
})

it('R11 a store failure during a single-use effect is logged', async () => {
  const { server, faults } = start((store) => ({ ...store, once: { ...store.once, claim: fails } }))
  const asked = await send(server, 'tools/call', { name: 'pay' })
  expect(faults()).toEqual([])
  const { requestState } = asked.result ?? {}
  const inputResponses = { sure: { action: 'accept', content: { confirm: true } } }
  const { error } = await send(server, 'tools/call', { name: 'pay', requestState, inputResponses })
  expect(error).toMatchObject({ code: -32000 })
  expect(faults()).toEqual([expect.objectContaining(down)])
  await server.close()
})
