/**
 * Transcripts on pages: `<!-- transcript NAME -->` before a block whose lines that begin with `$ ` are commands. Each is run in a
 * folder of its own, and must print what follows it. With RONDO_FILL=1 the output is written into the page. Needs the build.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createServer, generateKey } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { shipping } from '../../examples/labels.ts'
import { userPages } from '../support/check-pages.ts'
import { readRepository } from '../support/repository.ts'
import { send, settled } from '../support/task-client.ts'
import { useCliHome } from '../support/use-cli.ts'

const home = useCliHome()
const ID = 'Xc2Jt5mBq0yZ8vQnRr1LwA'

interface Session {
  /** The words of a command, as they are here. */
  readonly toHere: (text: string) => string
  /** What was printed, as a page shows it. */
  readonly toPage: (text: string) => string
  /** What the commands read, if they serve a host: their own output goes to stderr then. */
  readonly input?: string
}

const same = (text: string): string => text

/** Serves the tool of the first page, at a free port. */
async function serveTracker(): Promise<string> {
  const server = createServer({ name: 'tracker', version: '1.0.0', keys: generateKey(), log: 'off' })
  const schema = z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) })
  server.tool('resolve_bug', { input: z.object({ id: z.int() }) }, async ({ id }, ctx) => {
    const { resolution } = await ctx.ask('resolution', { message: `How was bug #${id} resolved?`, schema })
    return `Bug #${id} resolved as ${resolution}.`
  })
  onTestFinished(() => server.close())
  return (await server.listen({ port: 0, signals: false })).url
}

/** What a host of an older revision sends first. */
const HELLO = [
  {
    id: 1,
    method: 'initialize',
    params: {
      protocolVersion: '2025-03-26',
      capabilities: {},
      clientInfo: { name: 'goose', version: '1.0.0' },
    },
  },
  { method: 'notifications/initialized' },
  { id: 2, method: 'tools/list' },
]
  .map((message) => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  .join('')

/** Creates what the commands need, by the name of the transcript. */
const SETUPS: Readonly<Record<string, { page: string; begin: () => Promise<Session> }>> = {
  keys: {
    page: 'docs/guide/05-keys.md',
    async begin() {
      writeFileSync(join(home.path, 'ring.txt'), generateKey('2026-10'))
      return { toHere: same, toPage: same }
    },
  },
  later: {
    page: 'docs/hosts/later.md',
    async begin() {
      const url = await serveTracker()
      let id = ''
      return {
        toHere: (text) => text.replace('http://127.0.0.1:3000/mcp', url).replace('k7m2p9xq4d', id),
        toPage(text) {
          id = /^pending (\S+)$/m.exec(text)?.[1] ?? id
          return text.replaceAll(url, 'http://127.0.0.1:3000/mcp').replaceAll(id, 'k7m2p9xq4d')
        },
      }
    },
  },
  bridge: {
    page: 'docs/guide/bridge.md',
    async begin() {
      const url = await serveTracker()
      const { port } = new URL(url)
      return {
        toHere: (text) => text.replace('https://tracker.example/mcp', url),
        toPage: (text) => text.replaceAll(`127.0.0.1-${port}`, 'tracker.example'),
        input: HELLO,
      }
    },
  },
  tasks: {
    page: 'docs/guide/operate-tasks.md',
    async begin() {
      const keys = generateKey('2026-11')
      writeFileSync(join(home.path, 'keys'), keys)
      const store = createSqliteStore({ file: join(home.path, 'tasks.db') })
      const server = shipping({ keys, store, log: 'off' })
      onTestFinished(async () => {
        await server.close()
        await store.close()
      })
      const { result } = await send(server, 'tools/call', { name: 'ship', arguments: { order: '4711' } })
      const id = String(result?.taskId)
      await settled(server, id)
      return {
        toHere: (text) => text.replaceAll(ID, id),
        toPage: (text) =>
          text
            .replaceAll(id, ID)
            .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '2026-11-18T09:00:00.000Z')
            .replaceAll(/\b\d s\b/g, 'now')
            .replace(/(?<=^flow +)[\w-]{22}$/m, '7mTq0vB2yXJc5nR8L1wQzA'),
      }
    },
  },
}

const markOf = (name: string): RegExp => new RegExp(`(?<=<!-- transcript ${name} -->\\n\`\`\`text\\n)[^\`]*`)

/** The transcript with the output of its commands as it is now. */
async function rerun(transcript: string, { toHere, toPage, input }: Session): Promise<string> {
  const commands = transcript.split('\n').filter((line) => line.startsWith('$ rondo '))
  expect(commands.length).toBeGreaterThan(0)
  let text = ''
  for (const command of commands) {
    const words = toHere(command.slice('$ rondo '.length)).split(' ')
    const paths = words.map((word) =>
      /^(?:ring\.txt|keys|tasks\.db)$/.test(word) && word !== words[0] ? join(home.path, word) : word,
    )
    const { stdout, stderr } = await home.run(paths, { input })
    text += `${command}\n${toPage(input === undefined ? `${stdout}${stderr}` : stderr)}`
  }
  return text
}

it.each(Object.entries(SETUPS))(
  'the transcript %s is what its commands print',
  async (name, { page, begin }) => {
    const text = readFileSync(page, 'utf8')
    const transcript = markOf(name).exec(text)?.[0] ?? ''
    const now = await rerun(transcript, await begin())
    if (process.env.RONDO_FILL === '1')
      return writeFileSync(
        page,
        text.replace(markOf(name), () => now),
      )
    expect(transcript).toBe(now)
    // The control: a page that promises something else.
    expect(transcript.replace(/(?<=\n)[^$\n]/, '#')).not.toBe(now)
  },
)

it('every transcript of a page is run by a test', () => {
  const marks = userPages(readRepository()).flatMap(([, text]) =>
    Array.from(text.matchAll(/<!-- transcript (.+?) -->/g), ([, name = '']) => name),
  )
  // The last one is run by test/operate/recipe.long.test.ts.
  expect(marks.sort()).toEqual([...Object.keys(SETUPS), 'of check.sh'].sort())
})

/** Blocks with a command and what it prints, and no mark before them. */
const unmarked = (text: string): string[] =>
  Array.from(text.matchAll(/(<!-- transcript .+ -->\n)?^```\w*\n\$ (.*)/gm), ([, mark, command = '']) =>
    mark === undefined ? command : '',
  ).filter(Boolean)

it('every block with a command and its output is a transcript', () => {
  expect(unmarked('```text\n$ rondo x\ny\n```\n')).toEqual(['rondo x'])
  expect(unmarked('<!-- transcript x -->\n```text\n$ rondo x\ny\n```\n')).toEqual([])
  expect(userPages(readRepository()).flatMap(([, text]) => unmarked(text))).toEqual([])
})
