/**
 * The mistakes of a first program, in a terminal: the sentence that helps is on the screen. Elsewhere: SQLite without a
 * driver and PostgreSQL without its package (`dist.long.test.ts`), a wrong database (`task/postgres-message.test.ts`), a project
 * of `npm init -y` (`cli/commands.test.ts`).
 */

import { createServer } from 'node:net'
import { connect } from 'rondo/client'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { processFile } from '../support/process-file.ts'
import { openTerminal, type TerminalSession } from '../support/terminal-session.ts'

const env = { PATH: process.env.PATH ?? '', TERM: 'xterm-256color' }
const program = processFile('test/support/newcomer-process.ts')
let port: number
let terminal: TerminalSession

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return typeof address === 'object' && address ? address.port : 0
}

beforeAll(async () => {
  port = await freePort()
  terminal = openTerminal([String(port)], env, program)
  await terminal.see(`ready at http://127.0.0.1:${port}/mcp`)
})
afterAll(() => terminal.close())

async function call(tool: string): Promise<unknown> {
  const answers = { elicitation: async () => ({ action: 'accept' as const, content: { word: 'hi' } }) }
  const client = await connect(`http://127.0.0.1:${port}/mcp`, { answers })
  const { content } = await client.callTool(tool, {})
  await client.close()
  return content
}

it.each([
  ['nested', 'The field "place" cannot be asked for in a form: it is an object, but a form is flat'],
  ['secret', 'The field "password" looks like a secret'],
])('R11 the screen says what is wrong with a form: %s', async (tool, sentence) => {
  expect(await call(tool)).toMatchObject([{ text: `${tool} failed` }])
  await terminal.see(`${tool} threw`)
  await terminal.see(sentence)
})

it('R11 the screen has what an effect threw, with its first stack', async () => {
  expect(await call('effect')).toMatchObject([{ text: 'effect failed' }])
  await terminal.see('effect threw')
  await terminal.see('Error: The disk is full')
  await terminal.see('at writeToDisk (')
})

it('R11 the screen says in one sentence that a port is in use', async () => {
  const second = openTerminal([String(port)], env, program)
  try {
    await second.see(`Port ${port} on 127.0.0.1 is in use: stop the other process`)
    const { code, screen } = await second.end()
    expect(code).toBe(1)
    expect(screen).not.toContain('    at ')
  } finally {
    second.close()
  }
})
