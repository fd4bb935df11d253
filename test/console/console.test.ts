/** `rondo console` without a browser: the instances, the proxy, the API and its locks, and every action. Needs the build. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type PendingCall } from 'rondo/client'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import type { Action, ConsoleEvent } from '../../packages/cli/src/console/event.ts'
import { type ConsoleProcess, deskSource, officialSource, startConsole } from '../support/console-process.ts'
import { useCliHome } from '../support/use-cli.ts'

// Many processes, on a machine that may be busy.
vi.setConfig({ testTimeout: 300_000 })

const room = (name: string) => ({ room: { action: 'accept', content: { room: name } } }) as const
const sure = { sure: { action: 'accept', content: { confirm: true } } } as const

type RoundEvent = Extract<ConsoleEvent, { kind: 'round' }>

describe('a running console', () => {
  let desk: ConsoleProcess
  beforeAll(async () => {
    desk = await startConsole({ instances: 3 })
  })
  afterAll(async () => {
    await desk.stop()
  })

  const rounds = async (flow?: string): Promise<RoundEvent[]> =>
    (await desk.events()).filter(
      (event): event is RoundEvent =>
        event.kind === 'round' && (flow === undefined || event.round.flow === flow),
    )

  /** Begins a call and returns it with the flow that its first round began. */
  async function begin(tool = 'book'): Promise<{ pending: PendingCall; flow: string; instance: string }> {
    const client = await connect(desk.mcp)
    const started = await client.start({ method: 'tools/call', name: tool, arguments: {} })
    await client.close()
    if (started.status === 'complete') throw new Error('The call asked nothing')
    const [last] = (await rounds()).slice(-1)
    return { pending: started.pending, flow: last?.round.flow ?? '', instance: last?.instance ?? '' }
  }

  async function answer(pending: PendingCall, answers: object) {
    const client = await connect(desk.mcp)
    const next = await client.resume(pending, answers as never)
    await client.close()
    return next
  }

  async function finish(pending: PendingCall): Promise<string> {
    const asked = await answer(pending, room('red'))
    if (asked.status !== 'input_required') throw new Error(`Not asked: ${asked.status}`)
    const done = await answer(asked.pending, sure)
    return JSON.stringify(done)
  }

  const settled = (id: string): Promise<Action> =>
    vi.waitFor(async () => {
      const actions = (await desk.events()).flatMap((event) =>
        event.kind === 'action' ? [event.action] : [],
      )
      const found = actions.findLast((action) => action.id === id && action.ok !== undefined)
      if (found === undefined) throw new Error(`${id} has not happened yet`)
      return found
    }, 120_000)

  it('spreads the rounds of a call over real processes, and reports what each operation did', async () => {
    const { pending, flow } = await begin()
    expect(await finish(pending)).toContain('Booked red')
    const seen = await rounds(flow)
    expect(new Set(seen.map(({ instance }) => instance)).size).toBeGreaterThan(1)
    expect(seen[0]?.operations).toMatchObject([
      {
        key: 'price',
        kind: 'step',
        state: 'ran',
        value: '40',
        source: expect.stringMatching(/server\.mjs:\d+$/),
      },
      { key: 'room', kind: 'form', state: 'asked' },
    ])
    expect(seen[1]?.operations).toMatchObject([
      { state: 'replayed' },
      { state: 'answered' },
      { key: 'sure', state: 'asked' },
    ])
    expect(seen.at(-1)?.operations.at(-1)).toMatchObject({
      key: 'pay',
      state: 'ran',
      effectKey: expect.stringMatching(/^[0-9a-f]{32}$/),
    })
  })

  it('kills an instance, and the call completes on another', async () => {
    const { pending, flow, instance } = await begin()
    const action = await desk.act('kill', { flow })
    expect(action).toMatchObject({ instance, kind: 'kill' })
    expect(await finish(pending)).toContain('Booked red')
    expect(await settled(action.id)).toMatchObject({ ok: true })
    expect((await rounds(flow)).slice(1).map((one) => one.instance)).not.toContain(instance)
    expect(await desk.act('start', { instance })).toMatchObject({ ok: true })
  })

  it.each([
    ['flip', /^Refused: (commitment|tag)$/],
    ['principal', /^Refused: principal$/],
    ['expire', /^Refused: (flow-)?expired$/],
  ] as const)('shows that the server refuses an attack: %s', async (kind, reason) => {
    const { pending, flow } = await begin()
    expect(await desk.act(kind, { flow })).toMatchObject({
      ok: true,
      happened: expect.stringMatching(reason),
    })
    // The call itself is unharmed.
    expect(await finish(pending)).toContain('Booked red')
  })

  it('sends the next round to another instance', async () => {
    const { pending, flow } = await begin()
    const action = await desk.act('elsewhere', { flow })
    await finish(pending)
    expect(await settled(action.id)).toMatchObject({
      ok: true,
      happened: expect.stringContaining('replayed'),
    })
  })

  it('rewords an open question, which is then asked again, and the call completes with the new words', async () => {
    const { pending, flow } = await begin()
    const action = await desk.act('reword', { flow })
    const again = await answer(pending, room('red'))
    expect(await settled(action.id)).toMatchObject({
      ok: true,
      happened: expect.stringMatching(
        /^Round 2 on .: executed 0, replayed 1, input_required; asked again: room$/,
      ),
    })
    if (again.status !== 'input_required') throw new Error('Not asked again')
    expect(JSON.stringify(again.pending.questions)).toContain('Which room? (reworded)')
    expect(await finish(again.pending)).toContain('Booked red')
  })

  it('shows a task that sleeps, and then what it asks, and until when', async () => {
    const client = await connect(desk.mcp)
    // Resolves when the task asks.
    const started = client.start({ method: 'tools/call', name: 'remind', arguments: {} })
    const stored = async (status: string) => {
      const event = (await desk.events()).findLast((one) => one.kind === 'stored')
      if (event?.kind !== 'stored' || event.task.status !== status) throw new Error(`Not ${status} yet`)
      return event
    }
    const { id } = await vi.waitFor(async () => {
      const { task } = await stored('working')
      expect([task.openKeys, task.worker]).toEqual([[], undefined])
      expect((task.dueAt ?? 0) - task.createdAt).toBeGreaterThan(1_500)
      return task
    }, 120_000)
    await started
    await vi.waitFor(async () => {
      const event = await stored('input_required')
      expect(event.task.openKeys).toEqual(['room'])
      expect((event.task.dueAt ?? 0) - event.at).toBeGreaterThan(60_000)
    }, 120_000)
    // The console has read the questions as the owner of the task would.
    await vi.waitFor(async () => {
      const exchanges = (await desk.events()).flatMap((event) =>
        event.kind === 'exchange' ? [event.exchange] : [],
      )
      expect(JSON.stringify(exchanges.filter(({ method }) => method === 'tasks/get'))).toContain(
        'Which room now?',
      )
    }, 120_000)
    const before = (await stored('input_required')).task.polls?.count ?? 0
    for (let i = 0; i < 3; i++) await client.task(id).get()
    await vi.waitFor(async () => {
      const { task } = await stored('input_required')
      expect(task.polls?.count).toBe(before + 3)
    }, 120_000)
    await client.task(id).answer(room('blue'))
    await vi.waitFor(() => stored('completed'), 120_000)
    await client.close()
  })

  it('examines the server, and names the flow in which it examined the state', async () => {
    const response = await fetch(`${desk.origin}/api/doctor`, {
      method: 'POST',
      headers: { authorization: `Bearer ${desk.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ tool: 'book' }),
    })
    const { findings } = await response.json()
    const found = new Map<string, Record<string, unknown>>(
      findings.map((one: { id: string }) => [one.id, one]),
    )
    for (const id of ['state-tampered', 'state-user', 'state-arguments'])
      expect(found.get(id) ?? { verdict: 'skip' }).toMatchObject({
        verdict: expect.stringMatching(/pass|skip/),
      })
    expect(found.get('state-tampered')).toMatchObject({ verdict: 'pass', flow: expect.any(String) })
    expect((await rounds(String(found.get('state-tampered')?.flow))).length).toBeGreaterThan(0)
    expect((await desk.events()).some((event) => event.kind === 'examined' && event.tool === 'book')).toBe(
      true,
    )
  })

  it('delivers a round twice, under the same effect keys', async () => {
    const { pending, flow } = await begin()
    const asked = await answer(pending, room('blue'))
    const action = await desk.act('twice', { flow })
    if (asked.status !== 'input_required') throw new Error('Not asked')
    await answer(asked.pending, sure)
    expect(await settled(action.id)).toMatchObject({
      ok: true,
      happened: expect.stringContaining('same effect keys (pay '),
    })
  })

  it('loses a reply, and the same round sent again runs its effect under the same key', async () => {
    const { pending, flow } = await begin()
    const asked = await answer(pending, room('blue'))
    if (asked.status !== 'input_required') throw new Error('Not asked')
    const action = await desk.act('lose', { flow })
    await answer(asked.pending, sure).catch(() => {})
    await answer(asked.pending, sure).catch(() => {})
    expect(await settled(action.id)).toMatchObject({
      ok: true,
      happened: expect.stringContaining('same effect keys (pay '),
    })
  })

  it('answers from the page, and forks a finished call under another effect key', async () => {
    const { flow } = await begin()
    const open = (await rounds(flow))[0]
    expect(await desk.act('answer', { exchange: open?.exchange, inputResponses: room('red') })).toMatchObject(
      { ok: true },
    )
    const second = (await rounds(flow))[1]
    expect(await desk.act('answer', { exchange: second?.exchange, inputResponses: sure })).toMatchObject({
      ok: true,
      happened: expect.stringContaining('complete'),
    })
    const forked = await desk.act('fork', { exchange: open?.exchange, inputResponses: room('blue') })
    expect(forked).toMatchObject({
      ok: true,
      happened: expect.stringMatching(/^Round 2 on .: executed 0, replayed 1/),
    })
    const branch = (await rounds(flow)).at(-1)
    expect(await desk.act('fork', { exchange: branch?.exchange, inputResponses: sure })).toMatchObject({
      ok: true,
      happened: expect.stringContaining('other effect keys for pay'),
    })
  })

  it('drains an instance and replaces its process', async () => {
    const before = (await (await desk.get('/api/status')).json()).instances
    expect(await desk.act('drain', { instance: 'B' })).toMatchObject({ ok: true })
    await vi.waitFor(async () => {
      const { instances } = await (await desk.get('/api/status')).json()
      expect(instances[1]).toMatchObject({ name: 'B', state: 'up' })
      expect(instances[1].pid).not.toBe(before[1].pid)
    }, 120_000)
  })

  it('reloads the instances when the file changes, with a call open', async () => {
    const { pending } = await begin()
    writeFileSync(desk.file, deskSource('Reserved'))
    await vi.waitFor(async () => {
      const events = await desk.events()
      expect(
        events.some((event) => event.kind === 'action' && event.action.kind === 'reload' && event.action.ok),
      ).toBe(true)
    }, 120_000)
    expect(await finish(pending)).toContain('Reserved red')
    writeFileSync(desk.file, 'export default 5')
    await vi.waitFor(() => expect(desk.errors()).toContain('Still serving the previous version'), 120_000)
    expect(await finish((await begin()).pending)).toContain('Reserved red')
    rmSync(desk.file)
    await vi.waitFor(() => expect(desk.errors()).toContain('does not exist any more'), 120_000)
    expect(await finish((await begin()).pending)).toContain('Reserved red')
    writeFileSync(desk.file, deskSource())
    expect(await desk.act('reload')).toMatchObject({ ok: true })
  })

  it('continues the list of events after the last one that was seen', async () => {
    const all = await desk.events()
    const middle = all[Math.floor(all.length / 2)]
    const known = all.map(({ seq }) => seq).filter((seq) => seq > (middle?.seq ?? 0))
    // Others may have happened meanwhile.
    const continued = (await desk.events(middle?.seq)).map(({ seq }) => seq)
    expect(continued.slice(0, known.length)).toEqual(known)
  })

  /** With headers that `fetch` does not allow. */
  function raw(
    path: string,
    headers: Record<string, string>,
    method = 'GET',
  ): Promise<{ status?: number; headers: object }> {
    const { port } = new URL(desk.origin)
    return new Promise((done, fail) => {
      const req = request({ host: '127.0.0.1', port, path, method, headers }, (res) => {
        res.resume()
        done({ status: res.statusCode, headers: res.headers })
      })
      req.once('error', fail)
      req.end()
    })
  }

  it('T23 refuses the API without the token, and everything for a foreign host or origin', async () => {
    const { host } = new URL(desk.origin)
    const authorization = `Bearer ${desk.token}`
    expect(desk.token).toMatch(/^[\w-]{43}$/)
    expect((await raw('/api/status', { host, authorization })).status).toBe(200)
    for (const path of ['/api/status', '/api/events']) {
      expect((await raw(path, { host })).status).toBe(401)
      expect((await raw(path, { host, authorization: `${authorization}x` })).status).toBe(401)
      expect((await raw(path, { host, authorization: authorization.slice(0, -1) })).status).toBe(401)
    }
    expect((await raw('/api/actions', { host }, 'POST')).status).toBe(401)
    for (const path of ['/', '/api/status', '/mcp', '/console.js']) {
      const method = path === '/mcp' ? 'POST' : 'GET'
      expect((await raw(path, { host: 'rebound.example', authorization }, method)).status).toBe(403)
      expect((await raw(path, { host, authorization, origin: 'https://page.example' }, method)).status).toBe(
        403,
      )
      expect((await raw(path, { host, authorization, origin: 'null' }, method)).status).toBe(403)
    }
    expect((await raw('/api/status', { host, authorization, origin: desk.origin })).status).toBe(200)
  })

  it('serves its page under a policy that allows nothing but its own files', async () => {
    const response = await fetch(desk.origin)
    expect(response.headers.get('content-security-policy')).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
    )
    expect(await response.text()).not.toContain(desk.token)
    expect((await fetch(`${desk.origin}/../package.json`)).status).toBe(404)
  })

  it.each([
    ['', '400'],
    [{ kind: 'explode' }, 'Unknown action'],
    [{ kind: 'flip', flow: 'none' }, 'no open round'],
    [{ kind: 'kill' }, 'Name an instance'],
    [{ kind: 'answer', exchange: 7 }, 'must be a string'],
  ])('refuses an action that makes no sense: %j', async (body, message) => {
    await expect(desk.act(...([undefined, body] as never as ['kill', object]))).rejects.toThrow(message)
    expect((await desk.get('/api/status')).status).toBe(200)
  })

  it('answers 503 while no instance is up, and passes on what is not JSON', async () => {
    const post = async (body: string): Promise<string> => {
      const headers = { 'content-type': 'application/json' }
      const response = await fetch(desk.mcp, { method: 'POST', headers, body })
      return `${response.status} ${await response.text()}`
    }
    await expect.poll(() => post('{')).toMatch(/^400 /)
    // An instance of the test before may still be starting: it is killed once it is up.
    const killAndPost = async (): Promise<string> => {
      for (const instance of ['A', 'B', 'C']) await desk.act('kill', { instance })
      return post('{}')
    }
    await expect.poll(killAndPost).toMatch(/^503 .*No instance is up/s)
    for (const instance of ['A', 'B', 'C'])
      expect(await desk.act('start', { instance })).toMatchObject({ ok: true })
  })
})

describe.each([
  ['itself', false],
  ['as a function', true],
])('an official server, exported %s', (_how, isFunction) => {
  it('runs as several instances: its rounds are shown, its state is refused to others, and a kill does not end a call', async () => {
    const desk = await startConsole({ source: officialSource(isFunction), instances: 2 })
    try {
      const status = await (await desk.get('/api/status')).json()
      expect(status).toMatchObject({ isOfficial: true, exported: { name: 'default', isFunction } })
      const client = await connect(desk.mcp)
      const started = await client.start({ method: 'tools/call', name: 'book', arguments: {} })
      if (started.status !== 'input_required') throw new Error('Not asked')
      const rounds = async () =>
        (await desk.events()).flatMap((event) => (event.kind === 'round' ? [event] : []))
      const [first] = await rounds()
      expect(first?.operations).toMatchObject([
        { key: 'price', state: 'ran' },
        { key: 'room', state: 'asked' },
      ])
      const flow = first?.round.flow
      expect(await desk.act('principal', { flow })).toMatchObject({
        ok: true,
        happened: 'Refused: principal',
      })
      expect(await desk.act('kill', { flow })).toMatchObject({ instance: first?.instance })
      const done = await client.resume(started.pending, room('red'))
      expect(JSON.stringify(done)).toContain('Booked red for 40')
      expect((await rounds()).at(-1)?.instance).not.toBe(first?.instance)
      // Requests that arrive together are all served, also by a server that can do one at a time.
      const many = await Promise.all(
        Array.from({ length: 6 }, () => client.start({ method: 'tools/call', name: 'book', arguments: {} })),
      )
      expect(many.map((one) => one.status)).toEqual(Array(6).fill('input_required'))
      await client.close()
    } finally {
      expect(await desk.stop()).toBe(0)
    }
  })
})

describe('bad input', () => {
  const home = useCliHome()
  const file = (source: string): string => {
    const path = join(home.path, 'server.mjs')
    writeFileSync(path, source)
    return path
  }
  const index = new URL('../../packages/rondo/dist/index.js', import.meta.url).href

  it.each([
    ['exports no server', 'export default 5', /exports no server/],
    ['throws', `throw new Error('The database is missing')`, /The database is missing/],
    [
      'listens by itself',
      `import { createServer } from '${index}'
       await createServer({ name: 'x', version: '1' }).listen({ port: 0 })
       console.error('It listens')`,
      /starts listening itself/,
    ],
    ['exits', 'process.exit(3)', /exit code 3/],
    [
      'has a store that cannot be written',
      `import { createServer } from '${index}'
       import { createSqliteStore } from '${index.replace('index.js', 'sqlite.js')}'
       const store = createSqliteStore({ file: '${index.slice('file://'.length)}/tasks.db' })
       export default createServer({ name: 'x', version: '1', store })`,
      /Its store cannot be used\. .*SQLite could not complete the operation: .*(ENOTDIR|EEXIST)/,
    ],
  ])('a file that %s: a sentence, exit code 1, and no process', async (_what, source, message) => {
    const { code, stderr, stdout } = await home.run(['console', file(source), '--port', '0'])
    expect(stderr).toMatch(message)
    expect(stderr).not.toContain('It listens')
    expect([code, stdout]).toEqual([1, ''])
  })

  it('says what is wrong with its arguments', async () => {
    const path = file('export default 5')
    for (const [args, message] of [
      [[], 'Name one file'],
      [['none.ts'], 'No such file'],
      [[path, '--instances', '0'], 'from 1 to 16, not "0"'],
      [[path, '--instances', '-1'], 'from 1 to 16, not "-1"'],
      [[path, '--instances', '1000'], 'from 1 to 16, not "1000"'],
      [[path, '--instances', 'abc'], 'from 1 to 16, not "abc"'],
      [[path, '--instances', '2.5'], 'from 1 to 16'],
      [[path, '--port', '70000'], '--port'],
      [[path, '--host', '0.0.0.0'], '--host'],
    ] as const) {
      const { code, stderr } = await home.run(['console', ...args])
      expect([code, stderr]).toEqual([2, expect.stringContaining(message)])
    }
  })

  it('a busy port: a sentence, an exit code, and no process', async () => {
    const busy = createServer()
    busy.listen(0, '127.0.0.1')
    await once(busy, 'listening')
    const { port } = busy.address() as AddressInfo
    const { code, stderr } = await home.run(['console', file(deskSource()), '--port', String(port)])
    expect([code, stderr]).toEqual([6, expect.stringContaining(`Port ${port} is in use`)])
    busy.close()
  })
})

describe('without a browser', () => {
  it('--open says that it cannot open one, and the console serves all the same', async () => {
    const desk = await startConsole({ instances: 1, args: ['--open'], env: { PATH: '/nowhere' } })
    await vi.waitFor(() => expect(desk.errors()).toContain('open the address yourself'), 120_000)
    expect((await desk.get('/api/status')).status).toBe(200)
    expect(await desk.stop()).toBe(0)
  })

  it.each([
    ['the tests of the page are skipped', {}, 0],
    ['it is a failure in CI', { CI: 'true' }, 1],
  ])('no chromium that can be installed: a clear sentence, and %s', async (_what, env, expected) => {
    const folder = mkdtempSync(join(tmpdir(), 'rondo-no-chromium-'))
    // Everything that the script uses, except a package manager.
    for (const name of ['id', 'cat']) symlinkSync(`/usr/bin/${name}`, join(folder, name))
    const child = spawn('/bin/bash', ['scripts/ensure-chromium.sh'], {
      env: { PATH: folder, CHROMIUM: '/nowhere/chromium', ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let text = ''
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
    })
    const [code] = await once(child, 'close')
    expect([code, text]).toEqual([expected, expect.stringContaining('WILL BE SKIPPED')])
    rmSync(folder, { recursive: true, force: true })
  })
})

describe('stopping', () => {
  let desk: ConsoleProcess | undefined
  afterEach(async () => {
    await desk?.stop()
  })
  const isAlive = (pid: number): boolean => {
    try {
      process.kill(pid, 0)
      // A zombie that nobody has waited for is not running.
      return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
    } catch {
      return false
    }
  }
  const pidsOf = async ({ get }: ConsoleProcess): Promise<number[]> =>
    (await (await get('/api/status')).json()).instances.map(({ pid }: { pid: number }) => pid)

  it.each(['SIGTERM', 'SIGINT', 'SIGKILL'] as const)('%s leaves no process behind', async (signal) => {
    desk = await startConsole({ instances: 1 })
    const pids = await pidsOf(desk)
    expect(pids.every(isAlive)).toBe(true)
    const gone = once(desk.child, 'exit')
    desk.child.kill(signal)
    const [code] = await gone
    if (signal !== 'SIGKILL') expect(code).toBe(0)
    await vi.waitFor(() => expect(pids.filter(isAlive)).toEqual([]), 120_000)
  })
})
