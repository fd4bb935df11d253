/** `rondo play`: serves a file, reloads it, keeps calls open across reloads, stops cleanly. Needs the build. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { officialSource } from '../support/console-process.ts'
import { post } from '../support/post.ts'
import { CLI, type CliHome, createCliHome } from '../support/run-cli.ts'

// Many processes, on a machine that may have much to do.
vi.setConfig({ testTimeout: 300_000 })

let home: CliHome
let folder: string
let file: string
const playing: ChildProcess[] = []

beforeEach(() => {
  home = createCliHome()
  folder = mkdtempSync(join(tmpdir(), 'rondo-play-'))
  file = join(folder, 'server.mjs')
})
afterEach(async () => {
  for (const child of playing.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue
    child.kill('SIGTERM')
    await once(child, 'exit')
  }
  home.remove()
  rmSync(folder, { recursive: true, force: true })
})

const library = pathToFileURL(resolve('packages/rondo/dist/index.js')).href

function writeServer(reply: string): void {
  const schema = `{ type: 'object', properties: { name: { type: 'string' } }, required: ['name'] }`
  writeFileSync(
    file,
    `import { createServer } from '${library}'
    export default function () {
      const server = createServer({ name: 'played', version: '1.0.0', log: 'off' })
      server.tool('greet', { description: '${reply}' }, async (_args, ctx) => {
        const { name } = await ctx.ask('who', { message: 'Who?', schema: ${schema} })
        return '${reply} ' + name
      })
      return server
    }`,
  )
}

/** A file as the README's first program is: it listens, and exports nothing. */
/** Opens a port with Node alone. */
function writePlainListener(port: number): void {
  writeFileSync(
    file,
    `import { createServer } from 'node:http'
    await new Promise((done, fail) => createServer().once('error', fail).listen(${port}, '127.0.0.1', done))`,
  )
}

function writeListener(port = 0): void {
  writeFileSync(
    file,
    `import { createServer } from '${library}'
    const server = createServer({ name: 'alone', version: '1.0.0', log: 'off' })
    const { url } = await server.listen({ port: ${port} })
    console.error('LISTENS ' + url)`,
  )
}

async function ended(child: ChildProcess): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  return child.exitCode
}

interface Playing {
  readonly child: ChildProcess
  /** Waits until this was said since the last time something was waited for; gives the line. */
  hear(words: RegExp): Promise<RegExpExecArray>
}

function play(...options: string[]): Playing {
  const child = spawn(process.execPath, [CLI, 'play', file, '--port', '0', ...options], {
    env: home.env,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  playing.push(child)
  let said = ''
  let heard = 0
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  return {
    child,
    async hear(words) {
      const until = Date.now() + 120_000
      for (;;) {
        const found = words.exec(said.slice(heard))
        if (found !== null) {
          heard += found.index + found[0].length
          return found
        }
        const left = until - Date.now()
        if (left <= 0 || child.stderr === null) throw new Error(`${words} was not said:\n${said}`)
        await Promise.race([once(child.stderr, 'data'), new Promise((wake) => setTimeout(wake, left))])
      }
    },
  }
}

const SERVING = /Serving .* at (http:\S+)/

describe('rondo play', () => {
  it.each([
    ['shows why a tool failed', '', true],
    ['does not, if the file says dev: false', ', dev: false', false],
  ])('is development mode: the client %s', async (_what, option, isShown) => {
    writeFileSync(
      file,
      `import { createServer } from '${library}'
      const server = createServer({ name: 'played', version: '1.0.0', log: 'off'${option} })
      server.tool('fail', {}, async () => { throw new Error('The database is missing') })
      export default server`,
    )
    const [, url = ''] = await play('--no-watch').hear(SERVING)
    const { stdout, stderr } = await home.run(['call', url, 'fail'])
    expect(`${stdout}${stderr}`.includes('The database is missing')).toBe(isShown)
    // Without a server of its own, "rondo call" runs the file in the same way.
    const called = await home.run(['call', file, 'fail'])
    expect(`${called.stdout}${called.stderr}`.includes('The database is missing')).toBe(isShown)
  })

  it('serves an official server, over HTTP and stdio, and refuses pages of other sites', async () => {
    writeFileSync(file, officialSource(false))
    const [, url = ''] = await play('--no-watch').hear(SERVING)
    const served = await home.json(['call', url, 'book', '--detach'])
    expect([served.code, served.value.status]).toEqual([3, 'input_required'])
    const headers = { 'content-type': 'application/json', origin: 'https://page.example' }
    expect((await fetch(url, { method: 'POST', headers, body: '{}' })).status).toBe(403)

    const { value, code } = await home.json(['call', file, 'book', '--detach'])
    expect([code, value.status]).toEqual([3, 'input_required'])
    const answered = await home.run(['answer', String(value.id), 'room=red'])
    expect([answered.code, answered.stdout]).toEqual([0, expect.stringContaining('Booked red for 40')])
  })

  it('serves a file, reloads it after a change, and open calls continue', async () => {
    writeServer('Hello')
    const { hear, child } = play()
    const [, url = ''] = await hear(SERVING)
    const { value } = await home.json(['call', url, 'greet'])

    writeServer('Good day')
    const [, again] = await hear(SERVING)
    expect(again).toBe(url)
    expect((await home.run(['answer', String(value.id), 'who.name=Ada'])).stdout).toBe('Good day Ada\n')

    child.kill('SIGTERM')
    await hear(/Stopped\./)
    const [code] = await once(child, 'exit')
    expect(code).toBe(0)
    expect((await home.run(['tools', url])).code).toBe(6)
  })

  it('reports a broken file and serves it once it is fixed', async () => {
    writeServer('Hello')
    const { hear } = play()
    const [, url = ''] = await hear(SERVING)
    writeFileSync(file, 'export default 5')
    await hear(/Cannot serve \S+:\s+\S+ exports no server/)
    await hear(/Waiting for the file to change; Ctrl-C stops\./)
    writeServer('Back')
    await hear(SERVING)
    expect((await home.run(['tools', url])).stdout).toContain('Back')
  })

  it('serves a file that sends messages of its own to its parent', async () => {
    writeServer('Hello')
    appendFileSync(file, `\nprocess.send?.(null); process.send?.('hello')`)
    const [, url = ''] = await play('--no-watch').hear(SERVING)
    expect((await home.run(['tools', url])).stdout).toContain('Hello')
  })

  it('serves the routes of extensions of an official server beside the MCP endpoint', async () => {
    const pages = `rondo.use({ name: 'pages', routes: { '/pages': async () => new Response('a page', {
      headers: [['set-cookie', 'a=1'], ['set-cookie', 'b=2']],
    }) } })`
    writeFileSync(file, `${officialSource(true)}\n${pages}`)
    const [, url = ''] = await play('--no-watch').hear(SERVING)
    const response = await fetch(new URL('/pages/below', url))
    expect(await response.text()).toBe('a page')
    expect(response.headers.getSetCookie()).toEqual(['a=1', 'b=2'])
    expect((await fetch(new URL('/pagesbeside', url))).status).not.toBe(200)
    const headers = { origin: 'https://page.example' }
    expect((await fetch(new URL('/pages', url), { headers })).status).toBe(403)
  })

  it('serves the routes of extensions beside the MCP endpoint', async () => {
    writeFileSync(
      file,
      `import { createServer } from '${library}'
      const server = createServer({ name: 'paged', version: '1.0.0', log: 'off' })
      server.use({ name: 'pages', routes: { '/pages': async () => new Response('a page') } })
      export default server`,
    )
    const [, url = ''] = await play('--no-watch').hear(SERVING)
    expect(await (await fetch(new URL('/pages', url))).text()).toBe('a page')
    expect((await fetch(new URL('/other', url))).status).toBe(404)
  })

  it('T23 listens on loopback, and refuses pages of other sites', async () => {
    writeServer('Hello')
    const { hear } = play('--no-watch')
    const [, text = ''] = await hear(SERVING)
    const { hostname, port, host } = new URL(text)
    expect(hostname).toBe('127.0.0.1')
    const ask = (headers: Record<string, string>) =>
      post(Number(port), { headers: { 'content-type': 'application/json', ...headers }, body: '{}' })
    expect((await ask({ host })).status).toBe(400)
    expect((await ask({ host: 'rebound.example' })).status).toBe(403)
    expect((await ask({ host, origin: 'https://page.example' })).status).toBe(403)
  })

  it('leaves no server behind when it is killed', async () => {
    writeServer('Hello')
    const { hear, child } = play('--no-watch')
    const [, url = ''] = await hear(SERVING)
    child.kill('SIGKILL')
    await once(child, 'exit')
    const gone = async (): Promise<boolean> => (await home.run(['tools', url])).code === 6
    const tries: boolean[] = []
    while (tries.at(-1) !== true && tries.length < 10) tries.push(await gone())
    expect(tries.at(-1)).toBe(true)
  })

  it('exits with 2 for a missing file, and with 1 for a broken one with --no-watch', async () => {
    expect((await home.run(['play', join(folder, 'nowhere.ts')])).code).toBe(2)
    writeFileSync(file, 'this is no program')
    expect((await home.run(['play', file, '--no-watch', '--port', '0'])).code).toBe(1)
  })

  it('exits with 6 if its port is in use, and names the option', async () => {
    writeServer('Hello')
    const busy = createHttpServer()
    await new Promise<void>((done) => {
      busy.listen(0, '127.0.0.1', done)
    })
    const { port } = busy.address() as AddressInfo
    const { code, stderr } = await home.run(['play', file, '--port', String(port)])
    busy.close()
    expect([code, stderr]).toEqual([6, expect.stringMatching(/Port \d+ .* is in use.* with --port N\n$/)])
  })

  it.each([
    [2, ['--port', '99999'], /^rondo: --port takes a whole number from 0 to 65535, not "99999"/],
    [2, ['--port', '1.5'], /^rondo: --port takes a whole number from 0 to 65535, not "1.5"/],
    [
      6,
      ['--port', '0', '--host', 'no name.invalid'],
      /The name no name\.invalid is unknown.* with --host ADDRESS\n$/,
    ],
    [
      6,
      ['--port', '0', '--host', '203.0.113.9'],
      /203\.0\.113\.9 is not an address.* with --host ADDRESS, or .*\n$/,
    ],
  ])('exits with %i for %j, and names the option', async (code, words, sentence) => {
    writeServer('Hello')
    const ran = await home.run(['play', file, '--no-watch', ...words])
    expect([ran.code, ran.stderr]).toEqual([code, expect.stringMatching(sentence)])
    if (code === 2) return
    writeFileSync(file, officialSource(false))
    const official = await home.run(['play', file, '--no-watch', ...words])
    expect([official.code, official.stderr]).toEqual([code, expect.stringMatching(sentence)])
  })

  it('shows the frames of the file alone, in their order, once', async () => {
    writeFileSync(file, "function open() {\n  throw new Error('The database is missing')\n}\nopen()\n")
    const { stderr } = await home.run(['tools', file])
    const lines = stderr.split('\n').filter((line) => line.startsWith('server: '))
    expect(lines[0]).toBe('server: Error: The database is missing')
    expect(lines.slice(1)).toEqual([
      expect.stringContaining('server.mjs:2'),
      expect.stringContaining('server.mjs:4'),
    ])
  })

  it('says what to do with a file that listens itself, serves it once it is repaired, and exits on a signal', async () => {
    writeListener()
    const { hear, child } = play()
    await hear(/Cannot serve \S+:\s+\S+ starts listening itself\./)
    await hear(/Write "export default server" in place of "server\.listen\(\)"/)
    writeServer('Hello')
    const [, own = ''] = await hear(SERVING)
    expect((await home.run(['tools', own])).stdout).toContain('Hello')
    writeListener()
    await hear(/starts listening itself/)
    child.kill('SIGTERM')
    await hear(/Stopped\./)
    expect(await ended(child)).toBe(0)
  })

  it('other commands refuse a file that listens itself too, once and at once', async () => {
    writeListener()
    const { code, stderr } = await home.run(['tools', file])
    expect(code).toBe(6)
    expect(stderr.match(/starts listening itself/g)).toHaveLength(1)
    expect(stderr).not.toContain('LISTENS')
    expect(stderr).not.toMatch(/^server: {5}at /m)
    const busy = createHttpServer()
    await new Promise<void>((done) => {
      busy.listen(0, '127.0.0.1', done)
    })
    writePlainListener((busy.address() as AddressInfo).port)
    expect((await home.run(['tools', file])).stderr).toMatch(
      /starts listening itself[\s\S]*could not listen: .*EADDRINUSE/,
    )
    busy.close()
  })

  it.each([
    ['one signal', 1],
    ['two signals', 2],
  ])('exits on %s while a file is still loading, and ends the file’s process', async (_name, signals) => {
    const deaf = signals === 2 ? `process.on('SIGTERM', () => console.error('DEAF'))` : ''
    writeFileSync(
      file,
      `${deaf}\nconsole.error('PID', process.pid); await new Promise((go) => setInterval(() => go, 1e6))`,
    )
    const { hear, child } = play()
    const pid = Number((await hear(/PID (\d+)/))[1])
    child.kill('SIGTERM')
    if (signals === 2) {
      await hear(/DEAF/)
      child.kill('SIGTERM')
    }
    expect(await ended(child)).toBe(signals === 2 ? 130 : 0)
    await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), { timeout: 120_000 })
  })

  it('reports that a server exited by itself', async () => {
    writeServer('Hello')
    appendFileSync(file, `\nconsole.error('PID', process.pid)`)
    const { hear } = play()
    const pid = Number((await hear(/PID (\d+)/))[1])
    await hear(SERVING)
    process.kill(pid, 'SIGKILL')
    await hear(/exited \(SIGKILL\)/)
  })
})
