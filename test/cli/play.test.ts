/** `rondo play`: serves a file, reloads it, keeps calls open across reloads, stops cleanly. Needs the build. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { post } from '../support/post.ts'
import { CLI, type CliHome, createCliHome } from '../support/run-cli.ts'

// Many processes, on a machine that may have much to do.
vi.setConfig({ testTimeout: 60_000 })

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

const library = pathToFileURL(resolve('dist/index.js')).href

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
      const until = Date.now() + 20_000
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
  it('serves a file, serves it anew when it changed, and open calls go on', async () => {
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

  it('reports a broken file and goes on when it is mended', async () => {
    writeServer('Hello')
    const { hear } = play()
    const [, url = ''] = await hear(SERVING)
    writeFileSync(file, 'export default 5')
    await hear(/cannot be served:\s+TypeError: .* exports no server/)
    writeServer('Back')
    await hear(SERVING)
    expect((await home.run(['tools', url])).stdout).toContain('Back')
  })

  it('T23 listens on loopback, and to no page of another site', async () => {
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

  it('a process that is killed leaves no server behind', async () => {
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

  it('ends with 2 for a file that is not there, and with 1 for one that is broken and not watched', async () => {
    expect((await home.run(['play', join(folder, 'nowhere.ts')])).code).toBe(2)
    writeFileSync(file, 'this is no program')
    expect((await home.run(['play', file, '--no-watch', '--port', '0'])).code).toBe(1)
  })
})
