/** The doctor on servers whose faults are known, and on one that has none. Needs the build. */

import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { serve } from '@hono/node-server'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createServer, type Listening } from '../../packages/rondo/src/index.ts'
import { createDeskServer } from '../support/desk-server.ts'
import { startRoundRobin } from '../support/round-robin.ts'
import { type CliHome, createCliHome } from '../support/run-cli.ts'
import { scriptSession } from '../support/scripted-session.ts'
import { serveV1 } from '../support/v1-server.ts'
import { startWeakServer, type WeakServer } from '../support/weak-server.ts'

// Many processes, on a machine that may have much to do.
vi.setConfig({ testTimeout: 300_000 })

let home: CliHome
const closing: (() => unknown)[] = []

beforeAll(() => {
  home = createCliHome()
})
afterAll(async () => {
  for (const close of closing) await close()
  home.remove()
})

interface Found {
  readonly id: string
  readonly verdict: string
  readonly detail: string
  readonly advice?: string
}

async function examine(
  ...words: string[]
): Promise<{ code: number | null; found: Found[]; faults: string[] }> {
  const { code, value } = await home.json(['doctor', ...words])
  const found = value.findings as Found[]
  const faults = found.filter(({ verdict }) => verdict === 'warn' || verdict === 'fail')
  return { code, found, faults: faults.map(({ id, verdict }) => `${verdict} ${id}`) }
}

async function weak(options: Parameters<typeof startWeakServer>[0]): Promise<WeakServer> {
  const server = await startWeakServer(options)
  closing.push(server.close)
  return server
}

const ATTACK = ['--tool', 'transfer', '--other-tool', 'close_account'] as const

describe('a server whose state is plain JSON', () => {
  it('B3 B7 is reported for exactly its faults, each with advice', async () => {
    const { url } = await weak({ state: 'plain' })
    const { code, found, faults } = await examine(url, 'amount=5', ...ATTACK)
    expect(faults).toEqual([
      'warn state-readable',
      'fail state-tampered',
      'fail state-arguments',
      'fail state-tool',
      'warn state-expiry',
    ])
    expect(
      found
        .filter(({ verdict }) => verdict !== 'pass')
        .every(({ advice, verdict }) => advice || verdict === 'skip'),
    ).toBe(true)
    expect(code).toBe(1)
  })
})

describe('a server that signs with the official codec and binds nothing', () => {
  it('B7 is reported for exactly its faults', async () => {
    const { url } = await weak({ state: 'signed' })
    const { code, found, faults } = await examine(url, 'amount=5', ...ATTACK)
    expect(faults).toEqual([
      'warn state-readable',
      'warn state-spelling',
      'fail state-arguments',
      'fail state-tool',
    ])
    expect(found.find(({ id }) => id === 'state-readable')?.detail).toContain('perhaps signed')
    expect(found.find(({ id }) => id === 'state-expiry')).toMatchObject({ verdict: 'pass' })
    expect(code).toBe(1)
  })

  it('B6 passes the check of expiry, and one whose states do not expire fails it', async () => {
    const { url } = await weak({ state: 'signed', ttlSeconds: 5 })
    const short = await examine(url, 'amount=5', ...ATTACK, '--wait', '6.1')
    expect(short.found.find(({ id }) => id === 'state-expiry')).toMatchObject({ verdict: 'pass' })
    const plain = await weak({ state: 'plain' })
    const long = await examine(plain.url, 'amount=5', ...ATTACK, '--wait', '0.2')
    expect(long.found.find(({ id }) => id === 'state-expiry')).toMatchObject({ verdict: 'warn' })
  })
})

describe('an endpoint of an older era, or not of MCP', () => {
  it('is reported as such, and the other checks are skipped', async () => {
    const http = createHttpServer((_req, res) => res.writeHead(404).end())
    await new Promise<void>((resolve) => {
      http.listen(0, '127.0.0.1', resolve)
    })
    closing.push(() => http.close())
    const { port } = http.address() as AddressInfo
    const { code, faults, found } = await examine(`http://127.0.0.1:${port}/mcp`)
    expect(faults).toEqual(['fail era'])
    expect(found).toHaveLength(1)
    expect(code).toBe(1)
  })

  it('gets its handshake and sessions examined, and no session is left open', async () => {
    const v1 = await serveV1()
    closing.push(() => v1.close())
    const { faults, found } = await examine(v1.url)
    // The transport of that package leaves Origin to others.
    expect(faults).toEqual(['warn era', 'fail foreign-origin'])
    const passed = found.filter(({ verdict }) => verdict === 'pass').map(({ id }) => id)
    expect(passed).toEqual(expect.arrayContaining(['handshake', 'version-negotiation', 'ping', 'tools']))
    expect(passed).toEqual(expect.arrayContaining(['session', 'session-missing', 'session-end']))
    const count = (what: string) => v1.seen.filter((one) => one === what).length
    expect(count('DELETE')).toBe(count('POST initialize'))
  })

  it('gets its handshake examined over stdio', async () => {
    const command = ['--', process.execPath, '--import', resolve('node_modules/tsx/dist/loader.mjs')]
    const script = resolve('test/support/v1-stdio.ts')
    const { code, stdout } = await home.run(['doctor', ...command, script])
    expect(stdout).toMatch(
      /^pass {2}version-negotiation +for an unknown version the server offers 2025-11-25$/m,
    )
    expect(stdout).toMatch(/^7 pass, 1 warn, 0 fail, 1 skip$/m)
    expect(code).toBe(0)
  })

  it('is reported if it accepts every version and every session', async () => {
    const { fetch } = scriptSession({
      onCall(stream) {
        stream.send({ id: stream.message.id, result: { tools: [] } })
        stream.end()
      },
    })
    const port = await new Promise<number>((done) => {
      const http = serve({ fetch, port: 0, hostname: '127.0.0.1' }, (info) => done(info.port))
      closing.push(() => http.close())
    })
    const { faults } = await examine(`http://127.0.0.1:${port}/mcp`, '--revision', '2025-11-25')
    expect(faults).toEqual([
      'fail version-negotiation',
      'fail unknown-method',
      'warn version-header',
      'fail foreign-origin',
      'warn session',
      'warn session-missing',
    ])
  })
})

describe('a server that asks again after a decline', () => {
  it('B18 is reported for it', async () => {
    const { url } = await weak({ state: 'signed', insists: true })
    const { faults } = await examine(url, 'amount=5', ...ATTACK)
    expect(faults).toContain('fail state-no')
  })
})

describe('a fleet whose instances have different keys', () => {
  it('B2 is reported for refusing a genuine state, and no fleet that shares its keys', async () => {
    const start = async (keys: readonly string[]): Promise<string> => {
      const urls = await Promise.all(
        keys.map(async (key) => {
          const server = createServer({ name: 'fleet', version: '1.0.0', keys: key, log: 'off' })
          server.tool('save', {}, async (_args, ctx) => `${await ctx.confirm('sure', 'Sure?')}`)
          const { url } = await server.listen({ port: 0 })
          closing.push(() => server.close())
          return new URL(url)
        }),
      )
      const proxy = await startRoundRobin(urls)
      closing.unshift(() => proxy.close())
      return new URL('/mcp', proxy.url).href
    }
    const shared = generateKey('k')
    const good = await examine(await start([shared, shared]), '--tool', 'save')
    expect(good.faults).not.toContain('fail state-no')
    const bad = await examine(await start([generateKey('k'), generateKey('k')]), '--tool', 'save')
    expect(bad).toMatchObject({ code: 1, faults: ['fail state-no'] })
  })
})

describe('our own server', () => {
  const keys = generateKey()
  let listening: Listening

  beforeAll(async () => {
    const server = createDeskServer(keys)
    listening = await server.listen({ port: 0, signals: false })
    closing.push(() => server.close())
  })

  it('B3 B4 B7 has no findings over HTTP', async () => {
    const { code, found, faults } = await examine(
      listening.url,
      'what=x',
      '--tool',
      'delete',
      '--other-tool',
      'choose',
    )
    expect(faults).toEqual([])
    expect(found.filter(({ verdict }) => verdict === 'pass').length).toBeGreaterThanOrEqual(18)
    expect(found.map(({ id }) => id)).toEqual(
      expect.arrayContaining([
        'state-tampered',
        'state-spelling',
        'state-arguments',
        'state-tool',
        'state-errors',
      ]),
    )
    expect(code).toBe(0)
  })

  it('has no findings over stdio', async () => {
    const words = ['test/support/desk-file.ts', 'what=x', '--tool', 'delete', '--other-tool', 'choose']
    expect(await examine(...words)).toMatchObject({ code: 0, faults: [] })
  })

  it('B5 refuses the state of one user from another', async () => {
    const server = createServer({
      name: 'users',
      version: '1.0.0',
      log: 'off',
      keys,
      authenticate: ({ headers }) => ({ subject: headers('authorization') ?? 'nobody' }),
    })
    server.tool(
      'delete',
      { description: 'Deletes' },
      async (_args, ctx) => `${await ctx.confirm('sure', 'Sure?')}`,
    )
    const { url } = await server.listen({ port: 0, signals: false })
    closing.push(() => server.close())
    const header = (name: string) => `Authorization: Bearer ${name}`
    const words = ['--tool', 'delete', '--header', header('ada'), '--other-header', header('eve')]
    const { found } = await examine(url, ...words)
    expect(found.find(({ id }) => id === 'state-user')).toMatchObject({ verdict: 'pass' })
    const open = await examine(listening.url, 'what=x', '--tool', 'delete', '--other-header', header('eve'))
    expect(open.found.find(({ id }) => id === 'state-user')).toMatchObject({ verdict: 'fail' })
  })

  it.each(['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'])(
    'has no findings in %s',
    async (version) => {
      const { code, found, faults } = await examine(listening.url, '--revision', version)
      expect(faults).toEqual([])
      expect(found[0]).toMatchObject({ id: 'era', detail: `the server speaks ${version}` })
      expect(code).toBe(0)
    },
  )

  it('B3 B4 B7 has no findings in the draft, whose rounds have states too', async () => {
    const tool = ['what=x', '--tool', 'delete', '--other-tool', 'choose']
    const { code, found, faults } = await examine(listening.url, ...tool, '--revision', 'DRAFT-2026-v1')
    expect(faults).toEqual([])
    expect(found.map(({ id }) => id)).toEqual(expect.arrayContaining(['handshake', 'state-tampered']))
    expect(code).toBe(0)
  })

  it('is reported in a table that says what could not be checked', async () => {
    const { code, stdout } = await home.run(['doctor', listening.url])
    expect(stdout).toMatch(/^pass {2}era +the server speaks 2026-07-28$/m)
    expect(stdout).toMatch(/^skip {2}state +no tool that asks was found\n +→ Name a tool that asks/m)
    expect(stdout).toMatch(/^\d+ pass, 0 warn, 0 fail, 2 skip$/m)
    expect(code).toBe(0)
  })
})
