/**
 * `rondo console --store` without a browser: what its page can ask of a live store, attacks on it, and stores that are away, old or
 * full of hostile text. The command itself needs the build.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { renameSync } from 'node:fs'
import { request } from 'node:http'
import { connect } from 'node:net'
import { createServer, generateKey, parseKeys, type Server } from 'rondo'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import {
  type DeskLog,
  type DeskPage,
  type DeskReply,
  type DeskTools,
  type DeskView,
  openStoreDesk,
  type StoreDesk,
  type StoreDeskOptions,
} from '../../packages/cli/src/console/store.ts'
import { openWeb, type Web } from '../../packages/cli/src/console/web.ts'
import { openSqlite } from '../../packages/rondo/src/store/sqlite/database.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { CLI } from '../support/run-cli.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { claimNew, type Database, newTask } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'
import { useCliHome } from '../support/use-cli.ts'

vi.setConfig({ testTimeout: 120_000 })

const keys = generateKey('k')
const ring = parseKeys(keys)
const SECRET = 'CANARY'
const HOSTILE = '<img src=x onerror=alert(1)>\u202e\u200b\u0007'

type Place = StoreDeskOptions['place']

/** Sends requests as the page does. */
interface Page {
  list(body?: object): Promise<DeskPage>
  show(id: string, more?: object): Promise<DeskView>
  log(): Promise<DeskLog['actions']>
  paused(): Promise<DeskTools['paused']>
  act(action: string, subject: string, more?: object): Promise<DeskReply>
}

function pageOf({ api }: StoreDesk): Page {
  const call = async <T>(at: string, body?: unknown): Promise<T> => {
    const run = api.get(at)
    if (run === undefined) throw new Error(`The console has no ${at}`)
    // As the reply arrives at the page.
    return JSON.parse(JSON.stringify(await run(body))) as T
  }
  return {
    list: (body = {}) => call('POST /api/list', body),
    show: (id, more = {}) => call('POST /api/show', { id, ...more }),
    log: async () => (await call<DeskLog>('GET /api/log')).actions,
    paused: async () => (await call<DeskTools>('GET /api/tools')).paused,
    act: (action, subject, more = {}) => call('POST /api/act', { action, subject, ...more }),
  }
}

function describeDesk(open: () => Promise<{ database: Database; place: Place }>): void {
  let database: Database
  let place: Place
  let server: Server
  let isBroken: boolean
  /** One that waits for an answer, and one that failed. */
  let ids: { readonly asks: string; readonly failed: string }

  const desk = async (options: Partial<StoreDeskOptions> = {}): Promise<Page> =>
    pageOf(
      await openStoreDesk({
        ...{ place, keys: () => ring, content: false, who: undefined, now: Date.now },
        ...options,
      }),
    )
  const begin = async (name: string): Promise<string> => {
    const id = String(
      (await send(server, 'tools/call', { name, arguments: { card: SECRET } })).result?.taskId,
    )
    await settled(server, id)
    return id
  }

  beforeEach(async () => {
    ;({ database, place } = await open())
    isBroken = true
    server = createServer({
      ...{ name: 'shop', version: '1', keys, log: 'off', store: database.open() },
      authenticate: () => ({ subject: 'ada' }),
    })
    server.tool('order', { task: 'always' }, async (_args, ctx) => {
      await ctx.step('look up', () => `${SECRET} ${HOSTILE} ${'x'.repeat(20_000)}`)
      await ctx.step('price', () => (isBroken ? Number.NaN : 7))
      return 'ordered'
    })
    server.tool('asks', { task: 'always' }, async (_args, ctx) => {
      ctx.label({ order: '4711' })
      return `${await ctx.confirm('sure', 'Sure?')}`
    })
    ids = { failed: await begin('order'), asks: await begin('asks') }
  })
  afterEach(async () => {
    await server.close()
    await database.close()
  })

  it('M4 lists tasks by status, tool, label, owner and age, page by page', async () => {
    const page = await desk()
    const found = async (body: object): Promise<string[]> => (await page.list(body)).tasks.map(({ id }) => id)
    expect(await found({})).toEqual([ids.asks, ids.failed])
    expect(await found({ status: 'failed' })).toEqual([ids.failed])
    expect(await found({ tool: 'asks' })).toEqual([ids.asks])
    expect(await found({ label: ['order=4711'] })).toEqual([ids.asks])
    expect(await found({ label: ['order=4712'] })).toEqual([])
    expect(await found({ label: ['order=4711', 'order=4712'] })).toEqual([])
    await expect(found({ label: Array(9).fill('order=4711') })).rejects.toThrow('at most 8 strings')
    expect(await found({ 'older-than': '1h' })).toEqual([])
    const first = await page.list({ limit: 1 })
    expect(first).toMatchObject({ tasks: [{ id: ids.asks, waits: 'answer sure' }], stats: { parked: 1 } })
    expect(await found({ limit: 1, after: first.next })).toEqual([ids.failed])
    expect(await found({ owner: first.tasks[0]?.owner })).toEqual([ids.asks, ids.failed])
    expect(await found({ owner: 'other/tag' })).toEqual([])
    expect(await (await desk({ keys: () => undefined })).list({ tool: 'asks' })).toMatchObject({ tasks: [] })
  })

  it('M4 shows nothing sealed without the keys, the journal with them, and values only with --content', async () => {
    const { failed } = ids
    const plain = await (await desk({ keys: () => undefined, content: true })).show(failed)
    expect(plain).toMatchObject({ task: { id: failed, status: 'failed' }, opened: [], journal: [] })
    expect(JSON.stringify(plain)).not.toMatch(/look up|order|CANARY|~/)
    const opened = await (await desk()).show(failed, { content: true })
    expect(opened.opened).toContainEqual(['tool', 'order'])
    expect(opened.journal).toMatchObject([{ kind: 'step', key: 'look up' }])
    expect(JSON.stringify(opened)).not.toContain(SECRET)
    expect((await (await desk()).show(ids.asks)).opened).toContainEqual(['asked', '["sure"]'])
    const all = await (await desk({ content: true })).show(failed)
    expect(all.journal[0]?.values).toContain(SECRET)
    expect(all.opened.find(([name]) => name === 'args')?.[1]).toContain(SECRET)
  })

  it('says that foreign keys open nothing, and refuses a new branch with them', async () => {
    const foreign = parseKeys(generateKey('k'))
    const page = await desk({ keys: () => foreign, content: true, who: 'ann' })
    const shown = await page.show(ids.failed)
    expect(shown).toMatchObject({
      journal: [],
      opened: [['sealed', expect.stringContaining('does not open')]],
    })
    expect(JSON.stringify(shown)).not.toMatch(/CANARY|look up/)
    await expect(page.act('retry', ids.failed, { from: 'look up', yes: true })).rejects.toThrow(
      'does not open',
    )
    expect(await page.list({ tool: 'order' })).toMatchObject({ tasks: [] })
  })

  it('M4 changes nothing without --act, whatever a request says', async () => {
    const page = await desk()
    const before = JSON.stringify((await page.list()).tasks)
    const claims = { act: true, who: 'ann', as: 'ann', yes: true, message: 'x', from: 'look up' }
    for (const action of ['cancel', 'fail', 'retry', 'purge', 'pause', 'continue', 'explode'])
      for (const subject of [ids.asks, ids.failed, 'order'])
        await expect(page.act(action, subject, claims)).rejects.toMatchObject({
          status: 403,
          message: expect.stringContaining('--act'),
        })
    expect(JSON.stringify((await page.list()).tasks)).toBe(before)
    expect([await page.log(), await database.open().operator?.paused()]).toEqual([[], []])
  })

  it('M4 with --act makes each change once, and records who made it, as the command line says', async () => {
    const page = await desk({ who: 'ann' })
    const as = { as: 'mallory', who: 'mallory' }
    for (const outcome of ['done', 'unchanged'])
      expect(await page.act('cancel', ids.asks, as)).toMatchObject({ kind: 'changed', outcome })
    isBroken = false
    expect(await page.act('retry', ids.failed)).toMatchObject({ says: `Task ${ids.failed} is due again.` })
    expect(await settled(server, ids.failed)).toMatchObject({ status: 'completed' })
    expect(await page.act('purge', ids.failed)).toMatchObject({ outcome: 'done' })
    expect(await page.act('purge', ids.failed)).toMatchObject({ outcome: 'unknown' })
    for (const outcome of ['done', 'unchanged'])
      expect(await page.act('pause', 'asks')).toMatchObject({ kind: 'changed', outcome })
    expect(await (await desk({ keys: () => undefined })).paused()).toEqual(['asks'])
    expect(await page.act('continue', 'asks')).toMatchObject({ outcome: 'done' })
    expect(await page.paused()).toEqual([])
    expect((await page.log()).map(({ who, action, subject }) => [who, action, subject])).toEqual([
      ['ann', 'continue', 'asks'],
      ['ann', 'pause', 'asks'],
      ['ann', 'purge', ids.failed],
      ['ann', 'retry', ids.failed],
      ['ann', 'cancel', ids.asks],
    ])
  })

  it('M4 starts a new branch only after a confirmation, and tells the owner why a task failed', async () => {
    const page = await desk({ who: 'ann' })
    for (const yes of [undefined, 'true', 1])
      expect(await page.act('retry', ids.failed, { from: 'look up', yes })).toMatchObject({
        kind: 'confirm',
        what: expect.stringContaining('run again under new keys'),
      })
    expect((await page.show(ids.failed)).task.status).toBe('failed')
    isBroken = false
    expect(await page.act('retry', ids.failed, { from: 'look up', yes: true })).toMatchObject({
      outcome: 'done',
    })
    expect(await settled(server, ids.failed)).toMatchObject({ status: 'completed' })
    expect(await page.act('fail', ids.asks, { message: 'Closed for repairs' })).toMatchObject({
      outcome: 'done',
    })
    expect(await settled(server, ids.asks)).toMatchObject({ error: { message: 'Closed for repairs' } })
    const blind = await desk({ who: 'ann', keys: () => undefined })
    await expect(blind.act('pause', 'asks')).rejects.toThrow('--keys')
    await expect(blind.act('fail', ids.asks, { message: 'x' })).rejects.toThrow('--keys')
  })

  it('refuses to change a task that ended in between, and lets one of two operators win', async () => {
    const [ann, bob] = [await desk({ who: 'ann' }), await desk({ who: 'bob' })]
    isBroken = false
    await ann.act('retry', ids.failed)
    await settled(server, ids.failed)
    expect(await bob.act('cancel', ids.failed)).toMatchObject({
      outcome: 'refused',
      says: expect.stringContaining('has already ended in another way; nothing was changed'),
    })
    const replies = await Promise.all([ann.act('cancel', ids.asks), bob.act('fail', ids.asks)])
    expect(replies.map((reply) => reply.kind === 'changed' && reply.outcome).sort()).toEqual([
      'done',
      'refused',
    ])
    expect((await ann.log()).filter(({ subject }) => subject === ids.asks)).toHaveLength(1)
  })

  it('cuts huge values, and shows hidden characters as escapes', async () => {
    const shown = await (await desk({ content: true })).show(ids.failed)
    const values = shown.journal[0]?.values ?? ''
    expect(values.length).toBeLessThan(2_100)
    expect(values).toContain('<img src=x')
    expect(values).toContain('\\u202e\\u200b\\u0007')
    expect(JSON.stringify(shown).length).toBeLessThan(20_000)
  })
}

const sqlitePlace = (file: string): Place => ({ word: file, cwd: '/', schema: undefined })

describe('a SQLite file', () => {
  describeDesk(async () => {
    const database = await createSqliteDatabase()
    return { database, place: sqlitePlace(database.file) }
  })
})

describePostgres('a PostgreSQL database', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())

  describeDesk(async () => {
    const database = createPostgresDatabase(server)
    const schema = database.address.kind === 'postgres' ? database.address.schema : ''
    return { database, place: { word: server.connectionString, cwd: '/', schema } }
  })
})

describe('a console of a file', () => {
  let database: Awaited<ReturnType<typeof createSqliteDatabase>>
  let id: string
  const open = (options: Partial<StoreDeskOptions> = {}): Promise<StoreDesk> =>
    openStoreDesk({
      ...{ place: sqlitePlace(database.file), keys: () => undefined, content: true },
      ...{ who: undefined, now: Date.now },
      ...options,
    })

  beforeEach(async () => {
    database = await createSqliteDatabase()
    const store = database.open()
    id = (await claimNew(store, { head: SECRET })).fence.id
  })
  afterEach(() => database.close())

  describe('at its address', () => {
    let desk: StoreDesk
    let web: Web
    let token: string
    beforeEach(async () => {
      desk = await open({ who: 'ann' })
      web = await openWeb({ port: 0, assets: new Map(), api: desk.api })
      token = new URL(web.page).hash.slice(1)
    })
    afterEach(() => web.close())

    const post = (
      path: string,
      headers: Record<string, string | string[]>,
      body: string = JSON.stringify({ action: 'cancel', subject: id }),
    ): Promise<{ status: number; text: string }> =>
      new Promise((done, fail) => {
        const given = { 'content-type': 'application/json', ...headers }
        const { port } = web
        const req = request(
          { host: '127.0.0.1', port, path, method: 'POST', headers: given },
          async (res) => {
            let text = ''
            for await (const chunk of res.setEncoding('utf8')) text += chunk
            done({ status: res.statusCode ?? 0, text })
          },
        )
        req.once('error', fail)
        req.end(body)
      })

    it('T23 acts for its own page only: a foreign host, origin or token, or no JSON, changes nothing', async () => {
      const host = `127.0.0.1:${web.port}`
      const authorization = `Bearer ${token}`
      const attacks: (readonly [number, Record<string, string | string[]>])[] = [
        [401, { host }],
        [401, { host, authorization: `Bearer ${'A'.repeat(token.length)}` }],
        [401, { host, authorization: `${authorization}x` }],
        [401, { host, authorization: token }],
        [401, { host, cookie: `token=${token}` }],
        [403, { host: 'rebound.example', authorization }],
        [403, { host: `127.0.0.1:${web.port + 1}`, authorization }],
        [403, { host, authorization, origin: 'https://page.example' }],
        [403, { host, authorization, origin: 'null' }],
        [403, { host, authorization, origin: `https://${host}` }],
        [415, { host, authorization, 'content-type': 'text/plain' }],
      ]
      for (const path of ['/api/act', '/api/list', '/api/show'])
        for (const [status, headers] of attacks) {
          const reply = await post(path, headers)
          expect([reply.status, path, headers]).toEqual([status, path, headers])
          expect(reply.text).not.toContain(id)
        }
      expect((await post(`/api/act?token=${token}`, { host })).status).toBe(401)
      const statuses = async (): Promise<string[]> =>
        (await database.open().tasks.list({})).map(({ status }) => status)
      expect(await statuses()).toEqual(['working'])
      expect((await post('/api/act', { host, authorization, origin: `http://${host}` })).status).toBe(200)
      expect(await statuses()).toEqual(['cancelled'])
    })

    it('T23 refuses a request with two hosts, whichever comes first', async () => {
      const own = `127.0.0.1:${web.port}`
      for (const hosts of [
        [own, 'rebound.example'],
        ['rebound.example', own],
      ]) {
        const lines = ['GET /api/status HTTP/1.1', ...hosts.map((host) => `Host: ${host}`)]
        const socket = connect(web.port, '127.0.0.1')
        socket.end([...lines, `Authorization: Bearer ${token}`, 'Connection: close', '', ''].join('\r\n'))
        let text = ''
        for await (const chunk of socket.setEncoding('utf8')) text += chunk
        expect(text).toMatch(/^HTTP\/1.1 403 /)
      }
    })

    it('serves none of the paths of the console of a server', async () => {
      const headers = { host: `127.0.0.1:${web.port}`, authorization: `Bearer ${token}` }
      for (const path of ['/mcp', '/api/calls', '/api/actions', '/api/deliveries', '/api/events'])
        expect((await post(path, headers)).status).toBe(404)
    })

    it.each([
      ['/api/act', 'null', 'must be an object'],
      ['/api/act', '[]', 'must be an object'],
      ['/api/act', '{', 'not JSON'],
      ['/api/act', '{"action":"cancel"}', 'subject'],
      ['/api/act', '{"action":"__proto__","subject":"x"}', 'Unknown action'],
      ['/api/act', '{"action":"cancel","subject":{"id":1}}', 'must be a string'],
      ['/api/list', '{"status":"sleeping"}', '--status takes one of'],
      ['/api/list', '{"status":["failed"]}', 'must be a string'],
      ['/api/list', '{"limit":"many"}', 'must be a number'],
      ['/api/list', '{"limit":100000}', '--limit takes'],
      ['/api/list', '{"older-than":"long"}', 'takes an age'],
      ['/api/show', '{}', 'Missing required property'],
    ])('R11 %s refuses %s with a sentence', async (path, body, message) => {
      const headers = { host: `127.0.0.1:${web.port}`, authorization: `Bearer ${token}` }
      const { status, text } = await post(path, headers, body)
      expect(status).toBe(400)
      expect(text).toContain(message)
      expect((await post('/api/list', headers, '{}')).status).toBe(200)
    })

    it('R9 refuses a text that is too long', async () => {
      const headers = { host: `127.0.0.1:${web.port}`, authorization: `Bearer ${token}` }
      const body = JSON.stringify({ action: 'pause', subject: 'x'.repeat(10_001) })
      expect(await post('/api/act', headers, body)).toMatchObject({
        status: 400,
        text: expect.stringContaining('at most 10000 characters'),
      })
    })

    it('takes neither keys nor a file from a request', async () => {
      const headers = { host: `127.0.0.1:${web.port}`, authorization: `Bearer ${token}` }
      const more = { keys: '/etc/hostname', store: '/etc/hostname', schema: 'x', content: true }
      const { status, text } = await post('/api/show', headers, JSON.stringify({ id, ...more }))
      expect([status, JSON.parse(text).opened]).toEqual([200, []])
    })
  })

  it('says that the store is away, and finds it again', async () => {
    const page = pageOf(await open({ who: 'ann' }))
    const away = `${database.file}.away`
    renameSync(database.file, away)
    await expect(page.list()).rejects.toMatchObject({
      status: 503,
      message: `No such file: ${database.file}`,
    })
    await expect(page.act('cancel', id)).rejects.toThrow('No such file')
    renameSync(away, database.file)
    expect((await page.list()).tasks).toMatchObject([{ id }])
    expect(await page.act('cancel', id)).toMatchObject({ outcome: 'done' })
  })

  it('refuses tables of another version at the start and later, and upgrades none', async () => {
    const page = pageOf(await open({ who: 'ann' }))
    const connection = openSqlite(database.file)
    const version = (): number => Number(connection.prepare('PRAGMA user_version').get()?.user_version)
    const current = version()
    connection.exec(`PRAGMA user_version = ${current - 1}`)
    for (const who of [undefined, 'ann']) await expect(open({ who })).rejects.toThrow('rondo store migrate')
    await expect(page.list()).rejects.toThrow('rondo store migrate')
    await expect(page.act('cancel', id)).rejects.toThrow('rondo store migrate')
    expect(version()).toBe(current - 1)
    connection.exec(`PRAGMA user_version = ${current}`)
    connection.close()
    expect(await page.act('cancel', id)).toMatchObject({ outcome: 'done' })
  })

  it.each([
    ['restate+http://127.0.0.1:9070', 'Restate has no part for operators'],
    ['memory', 'A store in memory'],
    [':memory:', 'A store in memory'],
    ['memory://', 'A store in memory'],
    ['mysql://127.0.0.1/x', 'A store is a file'],
    ['/nowhere/tasks.db', 'No such file'],
  ])('refuses the store %s and says what to use', async (word, message) => {
    await expect(open({ place: { word, cwd: '/', schema: undefined } })).rejects.toThrow(message)
  })

  it('refuses to show a task that does not exist', async () => {
    const page = pageOf(await open())
    await expect(page.show('nosuchtask')).rejects.toMatchObject({
      status: 404,
      message: expect.stringContaining('has no task nosuchtask'),
    })
  })

  it('pages through ten thousand tasks, each once', async () => {
    const page = pageOf(await open())
    const store = database.open()
    await store.tasks.create(newTask({ id: 'first', head: SECRET }), 10)
    const connection = openSqlite(database.file)
    const names = connection
      .prepare('PRAGMA table_info(task)')
      .all()
      .map(({ name }) => String(name))
      .filter((name) => name !== 'id')
    connection.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
      INSERT INTO task (id, ${names}) SELECT 'copy-' || i, ${names} FROM n, task WHERE id = 'first'`)
    connection.close()
    const seen = new Set<string>()
    let [after, pages]: [string | undefined, number] = [undefined, 0]
    do {
      const { tasks, next }: DeskPage = await page.list({ limit: 500, ...(after && { after }) })
      for (const task of tasks) seen.add(task.id)
      after = next
      pages += 1
    } while (after !== undefined)
    expect([seen.size, pages]).toEqual([10_002, 21])
  })

  it('bounds the requests that wait for a store', async () => {
    const { api } = await open()
    const list = api.get('POST /api/list')
    const replies = await Promise.allSettled(Array.from({ length: 50 }, async () => list?.({})))
    const refused = replies.filter(({ status }) => status === 'rejected')
    expect(refused.length).toBe(42)
    expect(await list?.({})).toMatchObject({ tasks: [{ id }] })
  })
})

describe('the command', () => {
  const home = useCliHome()

  it.each([
    [['--store', 'memory'], 'A store in memory'],
    [['--store', 'x.db', 'server.ts'], 'Name a file or --store, not both'],
    [['--store', 'x.db', '--config', 'mcp.json'], '--config is no option of --store'],
    [['server.ts', '--act'], '--act is an option of --store'],
  ])('rondo console %j is refused with a sentence', async (words, message) => {
    const ran = await home.run(['console', ...words])
    expect([ran.code, ran.stdout]).toEqual([EXITS.usage.code, ''])
    expect(ran.stderr).toContain(message)
  })

  it('T24 shows no password if the store cannot be reached', async () => {
    const address = 'postgres://rondo:hunter2@127.0.0.1:9/postgres'
    const ran = await home.run(['console', '--store', address, '--port', '0'])
    expect([ran.code, ran.stdout]).toEqual([EXITS.unreachable.code, ''])
    expect(ran.stderr).toContain('Cannot read postgres://rondo@127.0.0.1:9/postgres')
    expect(ran.stderr).not.toContain('hunter2')
  })

  it('serves the page until it is stopped, reads RONDO_KEYS, and prints neither keys nor requests', async () => {
    const database = await createSqliteDatabase()
    const { id } = (await claimNew(database.open(), { head: SECRET })).fence
    const args = [CLI, 'console', '--store', database.file, '--port', '0', '--act', '--as', 'ann', '--json']
    const child = spawn(process.execPath, args, { env: { ...home.env, RONDO_KEYS: keys } })
    let printed = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      printed += text
    })
    for await (const chunk of child.stdout.setEncoding('utf8')) {
      printed += chunk
      if (printed.includes('}\n')) break
    }
    const { page, ...others } = JSON.parse(printed)
    expect(others).toEqual({ store: database.file, act: true })
    const { origin, hash } = new URL(page)
    const headers = { authorization: `Bearer ${hash.slice(1)}`, 'content-type': 'application/json' }
    const html = await fetch(origin)
    expect(html.headers.get('content-security-policy')).toContain("script-src 'self'")
    expect(await html.text()).toContain('/store.js')
    expect(await (await fetch(`${origin}/api/status`, { headers })).json()).toMatchObject({
      ...{ store: database.file, who: 'ann', hasKeys: true },
    })
    const body = JSON.stringify({ action: 'cancel', subject: id })
    const reply = await fetch(`${origin}/api/act`, { method: 'POST', headers, body })
    expect(await reply.json()).toMatchObject({ outcome: 'done' })
    child.kill('SIGTERM')
    expect((await once(child, 'exit'))[0]).toBe(0)
    expect(printed).toMatch(/Stopped\.\n$/)
    expect(printed).not.toContain(keys.split(':')[1] ?? keys)
    expect(printed.replace(page, '')).not.toContain(hash.slice(1))
    await database.close()
  })
})
