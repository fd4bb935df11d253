/** Each numbered example is a program: it serves, and prints the command that calls it. The client examples call them. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { loadServer } from '../packages/cli/src/load-server.ts'
import { splitCommand } from '../packages/cli/src/words.ts'
import { processFile } from '../test/support/process-file.ts'
import { createCliHome } from '../test/support/run-cli.ts'

const folder = mkdtempSync(join(tmpdir(), 'rondo-examples-'))
const home = createCliHome()
const env = { ...process.env, PORT: '0', RONDO_KEYS: generateKey('examples') }
const children = new Set<ChildProcess>()

afterAll(() => {
  for (const child of children) child.kill('SIGKILL')
  home.remove()
  rmSync(folder, { recursive: true, force: true })
})

function start(file: string, args: string[] = [], more: Record<string, string> = {}) {
  const options = { cwd: folder, env: { ...env, ...more } }
  const child = spawn(process.execPath, [processFile(`examples/${file}`), ...args], options)
  children.add(child)
  let printed = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text
  })
  const exit = once(child, 'close').then(([code]) => {
    children.delete(child)
    return code as number
  })
  return { child, exit, printed: () => printed }
}

/** Serves an example; returns the words that follow `npx rondo` in what it prints. */
async function serve(file: string) {
  const { child, exit, printed } = start(file)
  await vi.waitUntil(() => /Call it: .*\n/.test(printed()), { timeout: 120_000, interval: 20 })
  const calls = Array.from(printed().matchAll(/npx rondo (.+)/g), ([, words = '']) => splitCommand(words))
  const stop = () => {
    child.kill('SIGTERM')
    return exit
  }
  return { url: /Serving (\S+)/.exec(printed())?.[1] ?? '', calls, stop }
}

describe('a numbered example', () => {
  const files = readdirSync('examples').filter((name) => /^(?!01)\d\d-.*\.ts$/.test(name))

  it('exists', () => expect(files.length).toBeGreaterThan(11))

  it.concurrent.each(files)('%s serves, and the command that it prints works', async (file) => {
    const { url, calls, stop } = await serve(file)
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/mcp$/)
    expect(calls.length).toBeGreaterThan(0)
    for (const words of calls) {
      const { code, value, stderr } = await home.json([...words, '--detach'])
      // 0: done; 3: the server asks, and the call is pending.
      expect([0, 3], `${JSON.stringify(value)} ${stderr}`).toContain(code)
      expect(value).not.toHaveProperty('result.isError')
    }
    expect(await stop()).toBe(0)
  })

  it.each(files)('%s exports what "rondo play" and "rondo console" open', async (file) => {
    const { server, exported } = await loadServer(resolve('examples', file))
    expect(exported).toEqual({ name: 'default', isFunction: true })
    await server.close()
  })

  it('fails if its command does not fit its tool', async () => {
    const { url, stop } = await serve('02-parallel.ts')
    expect((await home.run(['call', url, 'plan_trips', '--detach'])).code).not.toBe(0)
    await stop()
  })
})

describe('a client example', () => {
  const urls = { items: '', buckets: '' }
  beforeAll(async () => {
    urls.items = (await serve('08-custom-rules.ts')).url
    urls.buckets = (await serve('13-or-argument.ts')).url
  })

  /** Types the lines, each after what comes before it in the output. */
  async function run(file: string, args: string[], lines: [after: string, line: string][] = []) {
    const { child, exit, printed } = start(file, args, { SERVER: urls.items })
    for (const [after, line] of lines) {
      await expect.poll(printed).toContain(after)
      child.stdin.write(`${line}\n`)
    }
    child.stdin.end()
    expect(await exit).toBe(0)
    return printed()
  }

  it('client-call asks in the terminal', async () => {
    const text = await run('client-call.ts', [urls.items], [['[resolution]', 'Fixed']])
    expect(text).toContain('Bug #4522 resolved as Fixed.')
  })

  it('client-call and client-form cancel at the end of the input', async () => {
    for (const file of ['client-call.ts', 'client-form.ts']) {
      const text = await run(file, [urls.items])
      expect(text).not.toContain('resolved as')
      expect(text).toContain('text:')
    }
  })

  it('agent-loop takes a prompt, asks the person, and prints what the model says', async () => {
    const lines: [string, string][] = [
      ['You: ', 'Resolve bug 4522'],
      ["(Fixed, Won't Fix, Duplicate, By Design): ", 'Fixed'],
      ['Send? (yes, no, later): ', 'yes'],
    ]
    expect(await run('agent-loop.ts', [urls.items], lines)).toMatch(/Done: .*Bug #4522 resolved as Fixed/)
  })

  it('client-form shows what was wrong and asks again', async () => {
    const lines: [string, string][] = [
      ["(Fixed, Won't Fix, Duplicate, By Design): ", 'Gone'],
      ['Send? (yes, no, later): ', 'yes'],
      ['Duplicate, By Design) [Gone]: ', 'Fixed'],
      ['[Gone]: Send? (yes, no, later): ', 'yes'],
    ]
    const text = await run('client-form.ts', [urls.items], lines)
    expect(text).toContain('\n! ')
    expect(text).toContain('Bug #4522 resolved as Fixed.')
  })

  it.each(['no', '', 'later'])('client-form sends nothing without a yes: %j', async (said) => {
    const lines: [string, string][] = [
      ["(Fixed, Won't Fix, Duplicate, By Design): ", 'Fixed'],
      ['Send? (yes, no, later): ', said],
    ]
    const text = await run('client-form.ts', [urls.items], lines)
    expect(text).not.toContain('resolved as')
    expect(text).toContain(said === 'no' ? 'declined' : 'dismissed')
  })

  it('client-policy logs the round', async () => {
    const text = await run('client-policy.ts', [urls.items])
    expect(text).toContain('work-items tools/call round 1: resolution')
    expect(text).toContain('Bug #4522 resolved as Fixed.')
  })

  it('client-rounds sends each round itself', async () => {
    expect(await run('client-rounds.ts', [urls.buckets])).toContain('Created photos in eu')
  })

  it('client-suspend begins in one process and ends in another', async () => {
    const { id, questions } = JSON.parse(await run('client-suspend.ts', []))
    expect(questions).toHaveProperty('resolution')
    const done = await run('client-suspend.ts', [id, '{ "resolution": { "resolution": "Fixed" } }'])
    expect(done).toContain('Bug #4522 resolved as Fixed.')
  })
})

describe('the log with pino', () => {
  it('has the events as pino writes them, with errors described', () => {
    const program = `
      import { server } from ${JSON.stringify(pathToFileURL(processFile('examples/log-pino.ts')).href)}
      import { connect } from ${JSON.stringify(pathToFileURL(processFile('packages/rondo/src/client.ts')).href)}
      server.tool('fail', {}, () => { throw new Error('private') })
      const client = await connect(server)
      await client.callTool('ping', {})
      await client.callTool('fail', {})
      await client.close()
      await server.close()`
    const args = ['--input-type=module', '-e', program]
    const { stdout, stderr } = spawnSync(process.execPath, args, { env, encoding: 'utf8' })
    expect(stderr).toBe('')
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const INFO = 30
    const ERROR = 50
    expect(lines[0]).toMatchObject({ level: INFO, msg: 'round', target: 'ping', flow: expect.any(String) })
    const fault = lines.find(({ msg }) => msg === 'fault')
    expect(fault).toMatchObject({ level: ERROR, instance: expect.any(String), error: { name: 'Error' } })
    expect(stdout).not.toContain('private')
  })
})
