/** `rondo bridge` as hosts start it: a command between a client and a server of different revisions. */

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { StdioClientTransport as V1Transport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { connectOfficial, MODERN, OLDER } from '../support/official-client.ts'
import { processFile } from '../support/process-file.ts'
import { connectV1 } from '../support/v1-client.ts'
import { serveV1 } from '../support/v1-server.ts'
import { serveOfficial } from './peers.ts'

/** Needs the build. */
const RONDO = resolve('packages/cli/dist/cli.js')
const home = mkdtempSync(join(tmpdir(), 'rondo-bridge-'))
const env = { ...process.env, RONDO_HOME: home } as Record<string, string>
const tool = (target: string, args: Record<string, unknown> = {}) =>
  ({ method: 'tools/call', target, args }) as const
const bridge = (...args: string[]) => ({
  command: process.execPath,
  args: [RONDO, 'bridge', ...args],
  env,
  stderr: 'pipe' as const,
})
const v1 = (): string => processFile('test/support/v1-stdio.ts')

async function httpOfV1(): Promise<string> {
  const server = await serveV1()
  onTestFinished(() => server.close())
  return server.url
}

interface Run {
  readonly child: ChildProcess
  /** Resolves with everything that was written to stderr once it matches. */
  says(pattern: RegExp): Promise<string>
  readonly ended: Promise<number | null>
}

function start(...args: string[]): Run {
  const child = spawn(process.execPath, [RONDO, 'bridge', ...args], { env, stdio: ['pipe', 'pipe', 'pipe'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  let text = ''
  const listeners = new Set<() => void>()
  child.stderr?.on('data', (chunk) => {
    text += chunk
    for (const one of listeners) one()
  })
  const ended = new Promise<number | null>((done) => child.on('exit', (code) => done(code)))
  return {
    child,
    ended,
    says: (pattern) =>
      new Promise((done, fail) => {
        const look = (): void => void (pattern.test(text) && done(text))
        listeners.add(look)
        look()
        ended.then(() => (pattern.test(text) ? done(text) : fail(new Error(`it ended and said: ${text}`))))
      }),
  }
}

describe('K1 rondo bridge', () => {
  it('lets a client of 1.32 use a server of 2026-07-28 over stdio', async () => {
    const client = await connectV1(new V1Transport(bridge(await serveOfficial())) as never)
    onTestFinished(() => client.close())
    expect(await client.run(tool('add', { a: 2, b: 3 }))).toMatchObject({ text: '5' })
    expect(await client.run(tool('greet'), { who: { name: 'Ada' } })).toMatchObject({ text: 'Hello, Ada!' })
  })

  it('lets a client of 2026-07-28 use a command of an earlier revision', async () => {
    const transport = new StdioClientTransport(bridge('--', process.execPath, v1()))
    const client = await connectOfficial(transport, MODERN)
    onTestFinished(() => client.close())
    expect(await client.run(tool('greet'), { who: { name: 'Ada' } })).toMatchObject({ text: 'Hello, Ada!' })
    const three = { first: { value: 'a' }, second: { value: 'b' }, third: { value: 'c' } }
    expect((await client.run(tool('three_rounds', { id: 7 }), three)).text).toBe('7: a b c')
  })

  it('serves a command over HTTP, says what speaks what, and ends at SIGTERM', async () => {
    const run = start('--listen', '0', '--name', 'old', '--', process.execPath, v1())
    const said = await run.says(/serving (\S+)/)
    expect(said).toMatch(/^bridge: old \(v1\) speaks 2025-11-25 and offers \d+ tools$/m)
    const url = /serving (\S+)/.exec(said)?.[1] ?? ''
    const client = await connect(url, {
      answers: { elicitation: { form: () => ({ action: 'accept', content: { name: 'Ada' } }) } },
    })
    expect((await client.callTool('greet')).content).toEqual([{ type: 'text', text: 'Hello, Ada!' }])
    await run.says(/rondo speaks 2026-07-28; questions are translated/)
    await client.close()
    run.child.kill('SIGTERM')
    expect(await run.ended).toBe(0)
  })

  it('W6 serves the servers of a configuration file under their names', async () => {
    const file = join(home, 'mcp.json')
    const servers = {
      new: { url: await serveOfficial() },
      old: { command: process.execPath, args: [v1()] },
      off: { command: 'no-such-command', disabled: true },
    }
    writeFileSync(file, JSON.stringify({ mcpServers: servers }))
    const client = await connectOfficial(new StdioClientTransport(bridge('--config', file)), OLDER)
    onTestFinished(() => client.close())
    const { tools } = await client.client.listTools()
    expect(tools.map(({ name }) => name)).toEqual(expect.arrayContaining(['new_greet', 'old_greet']))
    for (const name of ['new_greet', 'old_greet'])
      expect((await client.run(tool(name), { who: { name: 'Ada' } })).text).toBe('Hello, Ada!')
    expect(client.asked).toEqual(['new asks: Who are you?', 'old asks: Who are you?'])
  })

  it('offers the tools that --only names, and warns of a name that no tool has', async () => {
    const run = start('--ask', 'host', '--listen', '0', '--only', 'add', '--only', 'gret', await httpOfV1())
    const said = await run.says(/serving (\S+)/)
    await run.says(/has no tool "gret"/)
    const client = await connect(/serving (\S+)/.exec(said)?.[1] ?? '')
    expect((await client.listTools()).map(({ name }) => name)).toEqual(['add'])
    await client.close()
  })
})

describe('rondo bridge says why it cannot start', () => {
  it.each<[string, readonly string[], number, RegExp]>([
    [
      'a command that does not exist',
      ['--', 'no-such-command-at-all'],
      6,
      /The server "no-such-command-at-all" does not answer: .*no-such-command-at-all/,
    ],
    [
      'a program that fails',
      ['--', 'node', 'no-such-program.js'],
      6,
      /does not answer: .*exit code 1\); it wrote: Error: Cannot find module .*no-such-program\.js/,
    ],
    [
      'a server that is not there',
      ['http://127.0.0.1:9/mcp'],
      6,
      /The server "127\.0\.0\.1-9" does not answer: .*ECONNREFUSED/,
    ],
    ['plain HTTP to another machine', ['http://example.com/mcp'], 2, /must be https/],
    ['two tools of one name', ['--config', clashing()], 2, /both offer the tool "a_a_add"/],
  ])('%s, once and in words for people', async (_name, args, code, wanted) => {
    const run = start(...args)
    expect(await run.ended).toBe(code)
    const lines = (await run.says(wanted)).trimEnd().split('\n')
    expect(lines.filter((line) => wanted.test(line))).toHaveLength(1)
    expect(lines.join('\n')).not.toMatch(/upstream|TypeError/)
    expect(lines).toHaveLength(1)
  })

  it('a port that is in use', async () => {
    const other = createServer()
    await new Promise<void>((done) => other.listen(0, '127.0.0.1', done))
    onTestFinished(() => void other.close())
    const { port } = other.address() as AddressInfo
    const run = start('--listen', String(port), '--', process.execPath, v1())
    const said = await run.says(/rondo: .*/)
    expect(said).toContain(
      `rondo: Port ${port} on 127.0.0.1 is in use. Choose another port with --listen PORT; --listen 0 picks a free one`,
    )
    expect(await run.ended).toBe(6)
  })

  it('a server of several, and serves the others', async () => {
    const file = join(home, 'down.json')
    const mcpServers = {
      up: { command: process.execPath, args: [v1()] },
      down: { url: 'http://127.0.0.1:9/mcp' },
    }
    writeFileSync(file, JSON.stringify({ mcpServers }))
    const run = start('--listen', '0', '--config', file)
    const lines = (await run.says(/serving (\S+)/)).split('\n')
    const about = lines.filter((line) => line.includes('down'))
    expect(about).toEqual([
      expect.stringMatching(/^bridge: The server "down" does not answer: .* It is tried again\.$/),
    ])
  })
})

/** A file in which a tool of one server has the name of another server's tool. */
function clashing(): string {
  const file = join(home, 'clash.json')
  const command = process.execPath
  const args = [resolve('test/support/one-tool-stdio.mjs')]
  const servers = { a: { command, args: [...args, 'a_add'] }, a_a: { command, args: [...args, 'add'] } }
  writeFileSync(file, JSON.stringify({ mcpServers: servers }))
  return file
}
