/** The commands without a terminal: what they print, where, and what they end with. Needs the build. */

import { mkdtempSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join, resolve } from 'node:path'
import { serve } from '@hono/node-server'
import { generateKey } from 'rondo'
import { describe, expect, it, onTestFinished } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { DISCOVERY, respond, said, scriptServer } from '../support/scripted-server.ts'
import { useCliHome, useDesk } from '../support/use-cli.ts'

const keys = generateKey()
const desk = useDesk(keys)
const home = useCliHome()

describe('rondo tools, prompts and resources', () => {
  it('list tools with their arguments', async () => {
    const { code, stdout } = await home.run(['tools', desk.url])
    expect(stdout).toMatch(/^echo +text=… \[whole=…\] \[yes=…\] \[list=…\] \[deep=…\] +Echoes$/m)
    expect(code).toBe(0)
  })

  it('list prompts and resources', async () => {
    expect((await home.run(['prompts', desk.url])).stdout).toMatch(/^brief /)
    expect((await home.run(['resources', desk.url])).stdout).toMatch(/^desk:\/\/report +report/)
  })

  it('print JSON with the server that it came from', async () => {
    const { value } = await home.json(['tools', desk.url])
    expect(value).toMatchObject({ server: { name: 'desk', version: '1.2.3', protocolVersion: '2026-07-28' } })
    expect(value.tools).toEqual(expect.arrayContaining([expect.objectContaining({ name: 'echo' })]))
  })
})

describe('a list and a call', () => {
  it('C5 declare the same capabilities, so that no tool is hidden from one of them', async () => {
    const server = scriptServer((seen) =>
      seen.method === 'tools/list'
        ? {
            resultType: 'complete',
            tools: [{ name: 'ask', inputSchema: { type: 'object' } }],
            ttlMs: 0,
            cacheScope: 'private',
          }
        : said('done'),
    )
    const discovery = { ...DISCOVERY, capabilities: { tools: {} } }
    const fetch = async (request: Request): Promise<Response> => {
      const { id, method } = (await request.clone().json()) as { id: number; method: string }
      return method === 'server/discover' ? respond(id, discovery) : server.fetch(request)
    }
    const url = await new Promise<string>((done) => {
      const http = serve({ fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) =>
        done(`http://127.0.0.1:${port}/mcp`),
      )
      onTestFinished(() => void http.close())
    })
    expect((await home.run(['tools', url])).stdout).toContain('ask')
    expect((await home.run(['call', url, 'ask'])).stdout).toBe('done\n')
    const declared = server.seen
      .filter(({ method }) => method === 'tools/list')
      .map(({ meta }) => meta['io.modelcontextprotocol/clientCapabilities'])
    expect(declared).toHaveLength(2)
    expect(declared[0]).toEqual({ elicitation: { form: {}, url: {} } })
    expect(declared[1]).toEqual(declared[0])
  })
})

describe('an unknown name', () => {
  it.each([
    [['tols', 'x'], 'Unknown command "tols". Did you mean "tools"?'],
    [['help', 'docter'], 'Unknown command "docter". Did you mean "doctor"?'],
    [['frobnicate'], 'Unknown command "frobnicate". Choose from tools, prompts,'],
  ])('%j is refused with a suggestion', async (words, said) => {
    const { code, stderr } = await home.run(words)
    expect(stderr).toContain(said)
    expect(code).toBe(EXITS.usage.code)
  })

  it('of a tool is refused with the closest name, or with a list', async () => {
    expect((await home.run(['call', desk.url, 'seet'])).stderr).toContain(
      'The server has no tool "seet". Did you mean "seat"?',
    )
    expect((await home.run(['call', desk.url, 'zzzzzz'])).stderr).toMatch(
      /no tool "zzzzzz"\. Choose from echo, .* and \d+ more/,
    )
  })
})

describe('a form with one field', () => {
  it('is answered by the key of its question, and shows what it accepts', async () => {
    const { stdout } = await home.run(['call', desk.url, 'seat'])
    const id = /^pending (\S+)$/m.exec(stdout)?.[1] ?? ''
    expect(stdout).toContain('    seat=  Seat: one of window, aisle\n')
    expect(stdout).toContain(`answer:   rondo answer ${id} seat=…`)
    const header = await home.run(['call', desk.url, 'seat', '--header', 'X-Team: a'])
    expect(header.stderr).toBe('Credentials are not stored: pass --header to these commands too.\n')
    const npx = await home.run(['pending', id], { env: { npm_command: 'exec' } })
    expect(npx.stdout).toContain(`answer:   npx rondo answer ${id} seat=…`)
    const { code, stderr } = await home.run(['answer', id, 'seat=middle'])
    expect(stderr).toBe('rondo: Invalid answer to "seat": Seat must be one of: window, aisle\n')
    expect(code).toBe(EXITS.answers.code)
    expect((await home.run(['answer', id, 'seat=aisle'])).stdout).toBe('seat: aisle\n')
  })
})

describe('a server that requires a login', () => {
  it('is reported with its status and its challenge', async () => {
    const server = createServer((_request, response) => {
      response.writeHead(401, {
        'Content-Type': 'application/json',
        'WWW-Authenticate': 'Bearer error="invalid_token", resource_metadata="https://a.example/meta"',
      })
      response.end('{"error":"invalid_token"}')
    })
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
    try {
      const { code, stderr } = await home.run(['tools', url])
      expect(stderr).toBe(
        'rondo: The server requires a login (HTTP status 401, invalid_token) [PEER_HTTP]\n' +
          `rondo: Pass a token with --bearer. Or log in: rondo login ${url}\n`,
      )
      expect(code).toBe(EXITS.server.code)
      const { value } = await home.json(['tools', url])
      expect(value.error).toMatchObject({
        code: 'PEER_HTTP',
        http: { status: 401, challenges: [{ scheme: 'Bearer' }] },
      })
    } finally {
      server.close()
    }
  })
})

describe('the server of a command', () => {
  const tsx = resolve('node_modules/tsx/dist/loader.mjs')
  const script = resolve('test/support/desk-stdio.ts')

  it('can be a command after "--"', async () => {
    const words = ['call', 'echo', 'text=hi', '--env', `RONDO_KEYS=${keys}`]
    const { code, stdout } = await home.run([...words, '--', process.execPath, '--import', tsx, script])
    expect(stdout).toBe('{"text":"hi"}\n')
    expect(code).toBe(0)
  })

  it('can be a quoted command', async () => {
    const command = `"${process.execPath}" --import '${tsx}' ${script}`
    const { stdout } = await home.run(['call', command, 'echo', 'text=hi', '--env', 'RONDO_KEYS'], {
      env: { RONDO_KEYS: keys },
    })
    expect(stdout).toBe('{"text":"hi"}\n')
  })

  it('can be a file that exports one, with a stored key', async () => {
    const { stdout, code } = await home.run(['call', 'test/support/desk-file.ts', 'echo', 'text=hi'])
    expect(stdout).toBe('{"text":"hi"}\n')
    expect(code).toBe(0)
  })

  it('is reported if it does not exist', async () => {
    expect(await home.run(['tools', 'http://127.0.0.1:9/mcp'])).toMatchObject({
      code: EXITS.unreachable.code,
    })
    const command = await home.run(['tools', '--', 'no-such-command-anywhere'])
    expect(command).toMatchObject({ code: EXITS.unreachable.code, stdout: '' })
    const file = await home.run(['tools', './nowhere.ts'])
    expect(file).toMatchObject({
      code: EXITS.usage.code,
      stderr: expect.stringContaining('No such file'),
    })
  })

  it.each(['server.ts', 'server.js'])(
    'is refused with advice if %s is in a project made by npm init -y',
    async (name) => {
      const folder = mkdtempSync(join(home.path, 'commonjs-'))
      writeFileSync(join(folder, 'package.json'), '{ "name": "x", "type": "commonjs" }')
      writeFileSync(join(folder, name), 'import "node:fs"\nawait 1\nexport default {}\n')
      const { code, stderr } = await home.run(['tools', join(folder, name)])
      expect(stderr).toContain('npm pkg set type=module')
      expect(stderr).not.toContain('    at ')
      expect(code).toBe(EXITS.unreachable.code)
    },
  )

  it('is refused with advice on stderr if its file exports none', async () => {
    const { code, stdout, stderr } = await home.run(['tools', 'test/support/desk-server.ts'])
    expect(stderr).toContain('exports no server')
    expect(stdout).toBe('')
    expect(code).toBe(EXITS.unreachable.code)
  })
})

describe('the arguments of a call', () => {
  const call = (...words: string[]) => home.run(['call', desk.url, 'echo', ...words])

  it('are converted to the types of the tool’s schema', async () => {
    const { stdout } = await call('text=7', 'whole=7', 'yes=no', 'list=1,2', 'list=3', 'deep.inside=4')
    expect(JSON.parse(stdout)).toEqual({
      text: '7',
      whole: 7,
      yes: false,
      list: [1, 2, 3],
      deep: { inside: 4 },
    })
  })

  it('come from a file or stdin, and the command line overrides them', async () => {
    const file = join(home.path, 'args.json')
    writeFileSync(file, '{"text":"a","whole":1}')
    expect(JSON.parse((await call('--args', file, 'text=b')).stdout)).toEqual({ text: 'b', whole: 1 })
    const { stdout } = await home.run(['call', desk.url, 'echo', '--args', '-'], { input: '{"text":"c"}' })
    expect(JSON.parse(stdout)).toEqual({ text: 'c' })
  })

  it.each([
    [['text=a', 'whole=x'], 'whole must be of type integer'],
    [['whole=1'], 'Missing required arguments: text=…'],
    [['text=a', 'other=1'], 'no argument other'],
    [['text=a', 'yes=maybe'], 'yes must be of type boolean'],
    [['text'], 'not name=value'],
    [['text:=nope'], 'not valid JSON'],
  ])('%j are refused before anything is called', async (words, sentence) => {
    const { code, stderr, stdout } = await call(...words)
    expect(stderr).toContain(sentence)
    expect(stdout).toBe('')
    expect(code).toBe(EXITS.usage.code)
  })
})

describe('the exit code', () => {
  it('is 1 if the tool failed, and its message is on stdout', async () => {
    const { code, stdout } = await home.run(['call', desk.url, 'fails'])
    expect(stdout).toBe('no luck\n')
    expect(code).toBe(EXITS.failed.code)
  })

  it('is 2 for an invalid command line', async () => {
    const lines = [
      ['nonsense'],
      ['tools'],
      ['call', desk.url],
      ['call', desk.url, 'nothing'],
      ['tools', desk.url, '--nope'],
    ]
    for (const line of lines)
      expect(await home.run(line)).toMatchObject({ code: EXITS.usage.code, stdout: '' })
  })

  it('comes with the error as JSON if --json was given', async () => {
    const { value, code } = await home.json(['tools', 'http://127.0.0.1:9/mcp'])
    expect(value).toMatchObject({ status: 'error', error: { exit: 6, code: 'PEER_UNREACHABLE' } })
    expect(code).toBe(6)
  })

  it('is 7 if a form asks for a secret, unless --allow-secrets is given', async () => {
    const refused = await home.run(['call', desk.url, 'login'])
    expect(refused).toMatchObject({ code: EXITS.refused.code, stdout: '' })
    expect(refused.stderr).toContain('looks like a secret')
    expect(await home.run(['call', desk.url, 'login', '--allow-secrets'])).toMatchObject({
      code: EXITS.pending.code,
    })
  })
})

describe('questions besides forms and URLs', () => {
  it('roots are sent without asking if --root is given', async () => {
    const ran = await home.run(['call', desk.url, 'where', '--root', 'src', '--root', 'docs'])
    expect(ran).toMatchObject({ code: 0, stdout: 'src, docs\n' })
    expect((await home.run(['call', desk.url, 'where'])).code).toBe(EXITS.server.code)
  })

  it('sampling is answered with a whole result if --sampling is given', async () => {
    expect((await home.run(['call', desk.url, 'think'])).code).toBe(EXITS.server.code)
    const { value } = await home.json(['call', desk.url, 'think', '--sampling'])
    const reply = { role: 'assistant', content: { type: 'text', text: 'tea' }, model: 'me' }
    const declined = await home.run(['answer', String(value.id), '--decline'])
    expect(declined).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    const ran = await home.run(['answer', String(value.id), `idea:=${JSON.stringify(reply)}`])
    expect(ran).toMatchObject({ code: 0, stdout: '{"type":"text","text":"tea"}\n' })
  })
})

describe('help', () => {
  it('lists every command and every exit code', async () => {
    const { code, stdout } = await home.run(['--help'])
    for (const name of ['tools', 'call', 'answer', 'doctor', 'state', 'keys', 'play']) {
      expect(stdout).toMatch(new RegExp(`^  ${name} `, 'm'))
    }
    for (const { code: number, meaning } of Object.values(EXITS)) {
      expect(stdout).toMatch(new RegExp(`^ +${number}  ${meaning}$`, 'm'))
    }
    expect(code).toBe(0)
  })

  it('lists the options of one command', async () => {
    const { stdout } = await home.run(['help', 'call'])
    expect(stdout).toContain('--answers FILE|-')
    expect((await home.run(['call', '--help'])).stdout).toBe(stdout)
  })

  it('prints the version', async () => {
    expect((await home.run(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  })
})
