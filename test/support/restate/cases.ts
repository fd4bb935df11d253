/** Everything that is tested on a real node of Restate, as cases that another process can run. */

import assert from 'node:assert/strict'
import { connect } from 'node:http2'
import { createServer, type Server } from 'rondo'
import { z } from 'zod'
import { createTaskObject, ownerKey } from '../../../packages/restate/src/task-object.ts'
import { createTaskId, type TaskTurnOutcome } from '../../../packages/rondo/src/store/task-engine.ts'
import {
  afterEach,
  alice,
  assertEqual,
  assertMatch,
  beforeEach,
  type ContractCase,
  collect,
  inputs,
  it,
  newTask,
  type StoreHarness,
  until,
} from '../../../packages/store-kit/src/harness.ts'
import { engineContract, engineControls } from '../../../packages/store-kit/src/index.ts'
import { describeOnceContract } from '../../../packages/store-kit/src/shared-state.ts'
import { effectsUnderToken } from '../../scenarios/effects-under-token.ts'
import { createWorld, type Scenario, scenarios, type World } from '../../scenarios/scenario.ts'
import { follow, send } from '../task-client.ts'
import { startBalancer } from './balancer.ts'
import type { TestRestate } from './server.ts'
import { createSite, freePort, type RestateSite, restateHarness } from './site.ts'

export function restateCases(restate: () => TestRestate): readonly ContractCase[] {
  const harness = restateHarness(restate)
  return [
    ...engineContract(harness),
    ...engineControls(harness),
    ...onceCases(restate),
    ...collect('Restate', () => describeOwn(restate)),
    ...collect('Restate: servers', () => describeServers(restate)),
  ]
}

/** Cases that count what a sweep deletes: here everything deletes itself, and cases of our own show that. */
const COUNTED = [
  'refuses a claim after its expiry, whether or not the record still exists',
  'keeps a blob until it expires',
]

function onceCases(restate: () => TestRestate): readonly ContractCase[] {
  const harness: StoreHarness = {
    name: 'Restate',
    async create() {
      const site = await createSite(restate())
      return { open: (now) => site.store({ now }) as never, close: site.close }
    },
  }
  const all = collect('Restate: once and blobs', () => describeOnceContract(harness))
  const kept = all.filter(({ name }) => !COUNTED.includes(name))
  if (all.length - kept.length !== COUNTED.length)
    throw new Error('The contract has other names for its cases')
  return kept
}

const complete = (result: string): TaskTurnOutcome => ({ kind: 'complete', result })

function describeOwn(restate: () => TestRestate): void {
  let site: RestateSite
  beforeEach(async () => {
    site = await createSite(restate())
  })
  afterEach(() => site.close())

  /** The data that Restate keeps of this site: names of services, keys and values. */
  const dump = async (): Promise<string> => {
    const tables = ['state', 'sys_journal', 'sys_invocation', 'sys_inbox']
    const texts = await Promise.all(
      tables.map(async (table) => {
        const response = await fetch(`${restate().admin[0]}/query`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
          body: JSON.stringify({ query: `SELECT * FROM ${table}` }),
        })
        const { rows } = (await response.json()) as { rows: readonly Record<string, unknown>[] }
        return rows.map((row) => Object.values(row).map(decode).join(' ')).join('\n')
      }),
    )
    return texts.join('\n')
  }
  const rowsOf = async (service: string) =>
    (await dump()).split('\n').filter((line) => line.includes(`${site.namespace}${service} `)).length

  it('J3 registers an endpoint that Restate could not reach when the process started', async () => {
    const balancer = await startBalancer()
    const port = await freePort()
    const endpoint = { port, url: balancer.url, identityKeys: [restate().identityKey] }
    const store = site.store({ endpoint, retryMs: 200 })
    await assert.rejects(store.blobs.get('blob'), { code: 'STORE_UNAVAILABLE' })
    balancer.add(port)
    await until('the registration', () =>
      store.blobs.get('blob').then(
        () => true,
        () => false,
      ),
    )
    await store.close()
    await balancer.close()
  })

  it('G1 wakes a sleeping task by a delayed call, not before its time', async () => {
    const engine = site.store().createEngine()
    let wakeAt = 0
    const serving = await engine.serve(async (turn) => {
      if (wakeAt > 0) return complete(String(turn.claimedAt >= wakeAt && Date.now() >= wakeAt - 5))
      wakeAt = turn.claimedAt + 700
      return { kind: 'park', inputs: inputs(), wakeAt }
    })
    const { id } = await engine.create(newTask())
    const view = await until('the end', async () => {
      const now = await engine.get(id, alice)
      return now?.status === 'completed' ? now : undefined
    })
    await serving.stop()
    assert.equal(view.result, 'true')
  })

  it('P15 deletes an expired task by a delayed call, and its owner forgets it', async () => {
    const engine = site.store().createEngine()
    const { id } = await engine.create(newTask({ ttlMs: 8_000 }))
    assert.ok((await rowsOf('Task')) > 0)
    assertMatch(await engine.list(alice, { limit: 5 }), [{ id }])
    await until('the expiry', async () => (await engine.get(id, alice)) === undefined)
    await until('the deletion', async () => {
      const left = await fetch(`${restate().admin[0]}/query`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
        body: JSON.stringify({
          query: `SELECT key FROM state WHERE service_key = '${id}' OR key LIKE '%${id}%'`,
        }),
      })
      return ((await left.json()) as { rows: unknown[] }).rows.length === 0
    })
    assertEqual(await engine.list(alice, { limit: 5 }), [])
  })

  it('B8 deletes records of single use and blobs when they expire', async () => {
    const store = site.store()
    const epoch = await store.once.epoch()
    const expiresAt = Date.now() + 6_000
    const slot = { flow: 'flow', round: 1, digest: 'digest', epoch, expiresAt }
    assertEqual(await store.once.claim(slot, { claimant: 'one', holdMs: 100 }), { kind: 'first' })
    await store.blobs.put('blob', 'sealed', expiresAt)
    assert.equal(await store.blobs.get('blob'), 'sealed')
    await until('the expiry', () => Date.now() >= expiresAt)
    assert.equal(await store.blobs.get('blob'), undefined)
    assertEqual(await store.once.claim(slot, { claimant: 'two', holdMs: 100 }), {
      kind: 'refused',
      reason: 'expired',
    })
    await until('the deletion', async () => {
      const lines = (await dump()).split('\n')
      return !lines.some((line) => line.includes(`${site.namespace}Blob blob row`))
    })
  })

  it('D4 admits as many unfinished tasks of an owner as the limit says, created at once or not', async () => {
    const engine = site.store().createEngine({ maxOpenTasks: 3 })
    const made = await Promise.allSettled(Array.from({ length: 8 }, () => engine.create(newTask())))
    const codes = made.map((one) => (one.status === 'rejected' ? one.reason.code : 'created')).sort()
    assertEqual(codes, [...Array(5).fill('LIMIT_TASKS'), ...Array(3).fill('created')])
    const [open] = await engine.list(alice, { limit: 1 })
    assert.equal(await engine.cancel(open?.id ?? '', alice), 'cancelled')
    await until('room for another', () =>
      engine.create(newTask()).then(
        () => true,
        () => false,
      ),
    )
    await assert.rejects(engine.create(newTask()), { code: 'LIMIT_TASKS' })
  })

  it('J3 creates a task once, however often it is asked to, and for one owner', async () => {
    const engine = site.store().createEngine()
    const task = newTask()
    const views = await Promise.all([engine.create(task), engine.create(task), engine.create(task)])
    assertEqual(
      views.map(({ id, createdAt }) => [id, createdAt]),
      Array(3).fill([task.id, views[0]?.createdAt]),
    )
    await assert.rejects(engine.create({ ...task, owner: { tenant: 'a', principal: 'b' } }))
  })

  it('D4 removes an admission whose process died before the task existed, when the owner has reached the limit', async () => {
    let time = Date.now()
    const engine = site.store({ now: () => time }).createEngine({ maxOpenTasks: 1 })
    await engine.list(alice, { limit: 1 })
    const id = createTaskId()
    await fetch(`${restate().ingress[0]}/${site.namespace}Owner/${ownerKey(alice)}/admit`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ id, at: time, expiresAt: time + 3_600_000, limit: 1 }),
    })
    await assert.rejects(engine.create(newTask()), { code: 'LIMIT_TASKS' })
    time += 120_000
    assertMatch(await engine.create(newTask()), { status: 'working' })
  })

  it('E9 J3 wakes a task again whose worker was not heard of, although Restate delivered its turn', async () => {
    let swallowed = false
    const store = site.store(
      {},
      {
        defineTask: (names) => createTaskObject(names, 3_000),
        deliver: (run) => async (wake, gone) => {
          if (swallowed) return await run(wake, gone)
          swallowed = true
          await site.vanish?.(wake.id, ['half'])
        },
      },
    )
    const engine = store.createEngine()
    const serving = await engine.serve(async ({ journal, task }) => complete(`${journal} ${task.failures}`))
    const { id } = await engine.create(newTask())
    const view = await until('the end', async () => {
      const now = await engine.get(id, alice)
      return now?.status === 'completed' ? now : undefined
    })
    await serving.stop()
    assert.equal(view.result, 'half 1')
  })

  it('J3 returns an ended task from memory, without Restate', async () => {
    const engine = site.store({ retryMs: 50 }).createEngine()
    const serving = await engine.serve(async () => complete('done'))
    const { id } = await engine.create(newTask())
    await until('the end', async () => (await engine.get(id, alice))?.status === 'completed')
    await serving.stop()
    await site.balancer.close()
    assertMatch(await engine.get(id, alice), { status: 'completed', result: 'done' })
    assert.equal(
      await engine.get(id, { ...alice, principal: 'bob' }).catch(() => 'asked Restate'),
      'asked Restate',
    )
  })

  it('J3 keeps a long journal in pieces, in order', async () => {
    const engine = site.store().createEngine()
    const entries = Array.from({ length: 40 }, (_, i) => `${i}:${'x'.repeat(2_000)}`)
    let turns = 0
    const serving = await engine.serve(async (turn) => {
      if (turns++ > 0) return complete(JSON.stringify(turn.journal.map((entry) => entry.split(':', 1)[0])))
      for (const entry of entries) await turn.record(entry)
      return { kind: 'release' }
    })
    const { id } = await engine.create(newTask({ journal: ['before:', 'then:'] }))
    const view = await until('the end', async () => {
      const now = await engine.get(id, alice)
      return now?.status === 'completed' ? now : undefined
    })
    await serving.stop()
    assertEqual(JSON.parse(view.result ?? ''), ['before', 'then', ...entries.map((_, i) => String(i))])
  })

  it('J3 shows an operator counts and summaries, and nothing sealed', async () => {
    const store = site.store()
    const engine = store.createEngine()
    const serving = await engine.serve(async () => ({ kind: 'park', inputs: new Map([['name', 'SEALED']]) }))
    const { id } = await engine.create(newTask({ head: 'SEALED', journal: ['SEALED'] }))
    await until('the question', async () => (await engine.get(id, alice))?.status === 'input_required')
    assertEqual(await store.tasks.stats(), { due: 0, oldestDueMs: 0, running: 0, parked: 1 })
    const listed = await store.tasks.list({})
    assertMatch(listed, [{ id, status: 'input_required', openKeys: ['name'], entries: 1 }])
    assert.equal(JSON.stringify(listed).includes('SEALED'), false)
    assertEqual(await store.tasks.list({ id: createTaskId() }), [])
    await serving.stop()
  })

  /** Sends a request to an endpoint as Restate would, with the given headers; resolves with the status. */
  const knock = (port: number, path: string, headers: Record<string, string>) =>
    new Promise<number>((resolve, reject) => {
      const session = connect(`http://127.0.0.1:${port}`)
      session.on('error', reject)
      const stream = session.request({ ':method': 'POST', ':path': path, ...headers })
      stream.on('error', reject)
      stream.on('response', (received) => resolve(received[':status'] ?? 0))
      stream.on('close', () => session.close())
      stream.resume()
      stream.end()
    })

  it('J3 refuses requests that Restate did not sign, and forged ones, at every path', async () => {
    const signed = { port: await freePort(), identityKeys: [restate().identityKey] }
    const open = { port: await freePort() }
    const stores = [signed, open].map((endpoint) => site.store({ endpoint, admin: undefined, retryMs: 50 }))
    // Opens the endpoint; nobody has registered it, so nothing can be stored.
    for (const store of stores) await store.ready().catch(() => {})
    const kinds = { 'content-type': 'application/vnd.restate.invocation.v6', accept: '*/*' }
    const forged = {
      ...kinds,
      'x-restate-signature-scheme': 'v1',
      'x-restate-jwt-v1': `${encode({ alg: 'EdDSA', typ: 'JWT', kid: restate().identityKey })}.${encode({
        aud: '/invoke',
        exp: Math.ceil(Date.now() / 1000) + 60,
        iat: 1,
        nbf: 1,
      })}.${Buffer.alloc(64, 1).toString('base64url')}`,
    }
    const paths = [`/invoke/${site.namespace}Turn/run`, `/invoke/${site.namespace}Task/settle`, '/discover']
    for (const path of paths) {
      assert.equal(await knock(signed.port, path, kinds), 401)
      assert.equal(await knock(signed.port, path, forged), 401)
      // Control: an endpoint without keys takes such requests seriously.
      assert.notEqual(await knock(open.port, path, kinds), 401)
    }
  })

  it('J3 keeps its inner calls from whoever reaches the ingress', async () => {
    const engine = site.store().createEngine()
    const { id } = await engine.create(newTask())
    const post = async (path: string) => {
      const response = await fetch(`${restate().ingress[0]}/${site.namespace}${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ id, wake: 1, at: Date.now() + 1e12 }),
      })
      return response.status
    }
    assertEqual([await post('Turn/run'), await post(`Task/${id}/expire`)], [400, 400])
    assertMatch(await engine.get(id, alice), { status: 'working' })
  })
}

const tools = scenarios.filter(({ method }) => method === 'tools/call')
const randomId = () => 'the same in every carrier'

/** Whole servers whose calls run as tasks. */
function describeServers(restate: () => TestRestate): void {
  let site: RestateSite
  let servers: Server[]
  beforeEach(async () => {
    site = await createSite(restate())
    servers = []
  })
  afterEach(async () => {
    await Promise.all(servers.map((server) => server.close()))
    await site.close()
  })
  const start = (): Server => {
    const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
    const options = { name: 'restate', version: '1.0.0', keys, log: 'off', dev: true, randomId } as const
    const server = createServer({ ...options, store: site.store() })
    servers.push(server)
    return server
  }
  const declare = (scenario: Scenario, world: World): Server => {
    const server = start()
    const tool: Server['tool'] = (name, definition, handler) =>
      server.tool(name, { ...definition, task: 'auto' }, handler)
    scenario.declare({ ...server, tool }, world)
    return server
  }

  for (const scenario of tools) {
    it(`R10 P20 J3 a task has the result and the effect keys of the rounds: ${scenario.name}`, async () => {
      const world = createWorld()
      const server = declare(scenario, world)
      const created = await send(server, 'tools/call', { name: scenario.target, arguments: scenario.args })
      assertMatch(created.result, { resultType: 'task', status: 'working' })
      const ended = await follow(server, String(created.result?.taskId), scenario.script)
      assertMatch(ended, {
        status: 'completed',
        result: { resultType: 'complete', content: [{ text: scenario.text }] },
      })
      assertEqual(world.effects, await effectsUnderToken(scenario, randomId))
      assertEqual(
        world.effects.map(({ name }) => name),
        scenario.effects,
      )
    })
  }

  it('E2 J3 a task continues on another instance after a restart', async () => {
    const [scenario] = tools.filter(({ script }) => Object.keys(script).length > 0)
    if (scenario === undefined) throw new Error('No scenario asks')
    const world = createWorld()
    const first = declare(scenario, world)
    const created = await send(first, 'tools/call', { name: scenario.target, arguments: scenario.args })
    await first.close()
    const second = declare(scenario, world)
    assertMatch(await follow(second, String(created.result?.taskId), scenario.script), {
      status: 'completed',
      result: { content: [{ text: scenario.text }] },
    })
  })

  it('J3 nothing but sealed content passes between Restate and a worker', async () => {
    const passed: string[] = []
    site.balancer.onData = (data) => passed.push(data.toString('latin1'))
    const server = start()
    server.tool(
      'secret',
      { task: 'always', input: z.object({ card: z.string() }) },
      async ({ card }, ctx) => {
        ctx.status('canary-status')
        await ctx.step('look', () => `canary-step ${card}`)
        const { value } = await ctx.ask('word', {
          message: 'canary-question',
          schema: z.object({ value: z.string() }),
        })
        return `canary-result ${value}`
      },
    )
    const call = { name: 'secret', arguments: { card: 'canary-argument' } }
    const { result } = await send(server, 'tools/call', call)
    const ended = await follow(server, String(result?.taskId), { word: { value: 'canary-answer' } })
    assert.ok(JSON.stringify(ended).includes('canary-result canary-answer'))
    const text = passed.join('')
    // The messages can be read on their way: the key of the question is not sealed.
    assert.ok(text.includes('"word"'))
    assert.equal(text.includes('canary'), false)
  })

  it('J3 a server is ready when Restate reaches it, and says what is wrong otherwise', async () => {
    const server = start()
    server.tool('go', {}, () => 'went')
    const listening = await server.listen({ port: 0, signals: false, ready: '/readyz' })
    const ready = async () => (await fetch(new URL('/readyz', listening.url))).status
    assert.equal(await ready(), 200)
    await site.balancer.close()
    await until('the loss', async () => (await ready()) === 503)
  })
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')

/** A value of a query: bytes are in hexadecimal digits. */
function decode(value: unknown): string {
  const text = String(value)
  return /^([0-9a-f]{2})+$/.test(text) ? `${text} ${Buffer.from(text, 'hex').toString()}` : text
}
