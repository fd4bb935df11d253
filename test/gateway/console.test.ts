/** `rondo console --config` before servers that attack its page, its terminal and its patience. Needs the build. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'rondo/client'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { HAS_BROWSER, openBrowser } from '../support/browser.ts'
import { type ConsoleProcess, startConsole } from '../support/console-process.ts'

// Many processes, on a machine that may be busy.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 })

/** A server as a command whose every text is markup with hidden characters, and whose tool asks before it returns. */
const HOSTILE = String.raw`
const HINT = { ttlMs: 0, cacheScope: 'private', resultType: 'complete' }
const evil = (what) => '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\u001b]0;hit\u0007\u001b[31m\u202e\u200b' + what
const form = { mode: 'form', message: evil('question'), requestedSchema: { type: 'object', properties: { who: { type: 'string', title: evil('field') } } } }
const text = [{ type: 'text', text: evil('result') }]
const replies = {
  'server/discover': { supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, instructions: evil('instructions'), _meta: { 'io.modelcontextprotocol/serverInfo': { name: evil('name'), title: evil('title'), version: evil('version') } }, ...HINT },
  'tools/list': { tools: [
    { name: 'ask', title: evil('title'), description: evil('description'), inputSchema: { type: 'object', properties: { x: { type: 'string', description: evil('argument') } } } },
    { name: evil('tool'), inputSchema: { type: 'object' } },
    { name: 'fail', inputSchema: { type: 'object' } },
    { name: 'shell', inputSchema: { type: 'object', properties: { '$(hit)': { type: 'string' } }, required: ['$(hit)'] } },
  ], ...HINT },
}
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  console.error(evil('stderr'))
  if (id === undefined) return
  const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...message }) + '\n')
  if (replies[method]) return write({ result: replies[method] })
  if (method !== 'tools/call' || params.name === 'fail') return write({ error: { code: -32000, message: evil('error') } })
  if (params.inputResponses === undefined)
    return write({ result: { resultType: 'input_required', inputRequests: { who: { method: 'elicitation/create', params: form } } } })
  write({ result: { content: text, resultType: 'complete' } })
})
`

/** A server with more tools than anybody can look at, and one that is offered without end. */
const HUGE = String.raw`
const HINT = { ttlMs: 0, cacheScope: 'private', resultType: 'complete' }
const isEndless = process.argv[1] === 'endless'
let page = 0
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line)
  if (id === undefined) return
  const write = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...message }) + '\n')
  if (method === 'server/discover')
    return write({ result: { supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, ...HINT } })
  if (method !== 'tools/list') return write({ error: { code: -32601, message: 'Method not found' } })
  page += 1
  const tools = Array.from({ length: isEndless ? 1 : 2000 }, (_, n) => ({ name: 'tool' + page + '-' + n, description: 'x'.repeat(100), inputSchema: { type: 'object' } }))
  write({ result: { tools, ...(isEndless && { nextCursor: 'c' + page }), ...HINT } })
})
`

const command = (source: string, ...args: string[]) => ({
  command: process.execPath,
  args: ['-e', source, ...args],
})
const hangs = { ...command('setInterval(() => {}, 1e6)'), timeout: 1 }

let console: ConsoleProcess
beforeAll(async () => {
  console = await startConsole({
    mcpServers: { evil: command(HOSTILE), huge: command(HUGE), endless: command(HUGE, 'endless'), hangs },
  })
})
afterAll(() => console?.stop())

const HIDDEN = /(?!\n)[\p{Cc}\p{Cf}]/u

describe('W8 the console before hostile servers', () => {
  it('serves the calls of the servers that answer, and writes no control characters to the terminal', async () => {
    const form = () => ({ action: 'accept', content: { who: 'Ada' } }) as const
    const client = await connect(console.mcp, { answers: { elicitation: { form } } })
    expect(JSON.stringify(await client.callTool('evil_ask'))).toContain('result')
    expect(await client.callTool('evil_fail').then(JSON.stringify, String)).toContain('error')
    const names = (await client.listTools()).map(({ name }) => name)
    await client.close()
    expect(names).toContain('huge_tool1-1999')
    expect(names.filter((name) => /^endless|^hangs/.test(name))).toEqual([])
    expect(console.errors()).not.toMatch(HIDDEN)
    expect(console.child.exitCode).toBeNull()
  })

  it.skipIf(!HAS_BROWSER)('draws what they say as text, and runs none of it', async () => {
    const browser = await openBrowser()
    try {
      const { page } = browser
      const assertHarmless = async (): Promise<void> => {
        const text = (await page.locator('main').textContent()) ?? ''
        expect(text).toContain('<script>window.hit=1</script>')
        expect(text.replaceAll('\t', '')).not.toMatch(HIDDEN)
        expect(await page.title()).not.toContain('hit')
        expect(await page.evaluate("[document.images.length, 'hit' in window]")).toEqual([0, false])
      }
      await page.goto(console.page)
      const open = (view: string) => page.getByRole('link', { name: view }).first().click()
      await open('Try')
      const tools = page.getByLabel('Tool', { exact: true })
      await tools.selectOption('evil_fail')
      await page.getByRole('button', { name: 'Call', exact: true }).click()
      await page
        .getByText(/<script>.*error/)
        .first()
        .waitFor()
      await assertHarmless()
      await open('Try')
      // The command for a terminal has the name of an argument, which a shell must not execute.
      await tools.selectOption('evil_shell')
      await page.locator('.command code', { hasText: "evil_shell '$(hit)=…'" }).waitFor()
      await tools.selectOption('evil_ask')
      expect(await tools.locator('option').count()).toBeGreaterThan(2_000)
      await page
        .getByText(/<script>.*description/)
        .first()
        .waitFor()
      await assertHarmless()
      await page.getByRole('button', { name: 'Call', exact: true }).click()
      await page.locator('.message', { hasText: 'question' }).waitFor()
      await assertHarmless()
      await page.getByRole('button', { name: 'Answer' }).click()
      await page.getByRole('region', { name: 'Result' }).waitFor()
      await assertHarmless()
      expect(browser.problems).toEqual([])
      const asked = browser.requests.filter((url) => url.startsWith('http'))
      expect(asked.filter((url) => !url.startsWith(console.origin))).toEqual([])
    } finally {
      await browser.close()
    }
  })
})

it('a console whose only server hangs ends with its reason', async () => {
  await expect(startConsole({ mcpServers: { hangs } })).rejects.toThrow(/"hangs" does not answer/)
})

it('a console whose only server is slow says which one it waits for, is usable meanwhile, and ends it even if it is killed', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-slow-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'pid')
  const source = `require('node:fs').writeFileSync(process.argv[1], String(process.pid)); setInterval(() => {}, 1e6)`
  const waiting = await startConsole({ mcpServers: { slow: command(source, file) } })
  onTestFinished(async () => void (await waiting.stop()))
  // It comes by another pipe than the address.
  const sentence = 'Waiting for the server "slow", which has not answered yet.'
  await expect.poll(() => waiting.errors()).toContain(sentence)
  expect((await fetch(waiting.page)).status).toBe(200)
  const pidOf = (): number => Number(readFileSync(file, 'utf8'))
  await expect.poll(pidOf).toBeGreaterThan(0)
  const pid = pidOf()
  const isAlive = (): boolean => {
    try {
      return process.kill(pid, 0)
    } catch {
      return false
    }
  }
  expect(isAlive()).toBe(true)
  waiting.child.kill('SIGKILL')
  await expect.poll(isAlive).toBe(false)
})
