/** K1: the command line of the Inspector, in both eras, before servers of both eras. `scripts/ensure-inspector.sh` installs it. */

import { execFile, execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, describe, expect, it, vi } from 'vitest'
import { SERVERS, serveGateway } from './peers.ts'

vi.setConfig({ testTimeout: 300_000 })

const PROGRAM = resolve(
  'node_modules/.cache/inspector/node_modules/@modelcontextprotocol/inspector/clients/mcpdo/build/mcp-bin.js',
)
const HAS_INSPECTOR = existsSync(PROGRAM)
const env = { ...process.env, HOME: mkdtempSync(join(tmpdir(), 'rondo-inspector-')) }

/** Runs one command. Its text is the same whether it succeeds or not: a question ends it with an exit code. */
async function mcpdo(...args: string[]): Promise<string> {
  const run = promisify(execFile)(process.execPath, [PROGRAM, '--plain', ...args], { env, timeout: 120_000 })
  const { stdout, stderr } = await run.catch((error: { stdout: string; stderr: string }) => error)
  return `${stdout}${stderr}`
}

afterAll(() => {
  // It leaves a process behind that holds its connections.
  if (HAS_INSPECTOR) execFileSync(process.execPath, [PROGRAM, 'daemon', 'stop'], { env })
})

describe.skipIf(!HAS_INSPECTOR).each(['modern', 'legacy'])('K1 the Inspector, era %s', (era) => {
  it.each(['official 2.4, HTTP', 'official 1.32, HTTP'])(
    'calls %s through a gateway, and answers',
    async (server) => {
      const { url } = await serveGateway({ peer: (await SERVERS[server]?.()) ?? {} })
      const name = `${era}-${server.includes('2.4') ? 'new' : 'old'}`
      const at = ['--connection', name]
      expect(await mcpdo('connect', `@${name}`, url, '--era', era)).toContain(`Era: ${era}`)
      expect(await mcpdo('tools/call', 'add', 'a:=2', 'b:=3', ...at)).toMatch(/\b5\b/)
      const [id = ''] = /elicitation-[\w-]+/.exec(await mcpdo('tools/call', 'greet', ...at)) ?? []
      expect(await mcpdo('elicitation/respond', id, 'name:=Ada', ...at)).toContain('Hello, Ada!')
      const [other = ''] = /elicitation-[\w-]+/.exec(await mcpdo('tools/call', 'greet', ...at)) ?? []
      expect(await mcpdo('elicitation/respond', other, '--decline', ...at)).toContain('nobody (decline)')
    },
  )
})
