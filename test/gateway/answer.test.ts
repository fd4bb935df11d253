/** `rondo bridge --ask terminal` and `rondo answer`: the person answers in another terminal. Needs the build. */

import { resolve } from 'node:path'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { describe, expect, it, onTestFinished } from 'vitest'
import { fillIn, KEY } from '../support/terminal-session.ts'
import { useCliHome, useTerminal } from '../support/use-cli.ts'
import { connectV1 } from '../support/v1-client.ts'
import { serveOfficial } from './peers.ts'

const RONDO = resolve('packages/cli/dist/cli.js')
const home = useCliHome()
const open = useTerminal(home)
const greet = { method: 'tools/call', target: 'greet' } as const

/** A host that declares nothing, with a bridge in front of a server of 2026-07-28. */
async function host(...options: string[]) {
  const args = [RONDO, 'bridge', ...options, '--name', 'desk', await serveOfficial()]
  const env = { ...home.env, BROWSER: '/no/such/browser' }
  const transport = new StdioClientTransport({ command: process.execPath, args, env, stderr: 'pipe' })
  let told = ''
  transport.stderr?.on('data', (chunk) => {
    told += chunk
  })
  const client = await connectV1(transport as never, {})
  onTestFinished(() => client.close())
  return { client, told: () => told }
}

describe('rondo answer', () => {
  it.each([
    ['with --ask terminal', ['--ask', 'terminal']],
    ['by itself, where no browser can be opened', []],
  ])('asks in a terminal %s, and the call completes', async (_name, options) => {
    const { client, told } = await host(...options)
    const calling = client.run(greet)
    await expect.poll(told).toMatch(/desk asks you something.*rondo answer/)
    // The address of the page is for the person alone.
    expect(told()).not.toContain('http://127.0.0.1')
    const terminal = open('answer')
    await terminal.see('desk (official) asks, for the tool greet')
    await terminal.see('Who are you?')
    await fillIn(terminal, 'Name', 'Ada')
    await terminal.see('Sent.')
    expect(await calling).toEqual({ text: 'Hello, Ada!', isError: false })
    terminal.signal('SIGTERM')
    expect((await terminal.end()).code).toBe(0)
  })

  it('waits for questions that come later, and says when a call has ended', async () => {
    const terminal = open('answer')
    await terminal.see('waiting for a question')
    const { client } = await host('--ask', 'terminal')
    const stop = new AbortController()
    const calling = client.client.callTool({ name: 'greet', arguments: {} }, undefined, {
      signal: stop.signal,
    })
    calling.catch(() => {})
    await terminal.see('Who are you?')
    stop.abort()
    await terminal.see('no longer open')
    const second = client.run(greet)
    await terminal.see('Who are you?')
    await terminal.see('What do you want to do?')
    terminal.press(KEY.ctrlC)
    expect((await second).text).toContain('nobody (cancel)')
    expect((await terminal.end()).code).toBe(130)
  })

  it('needs a terminal, so that no program that a model runs can answer', async () => {
    const { code, stderr } = await home.run(['answer'])
    expect(code).toBe(2)
    expect(stderr).toMatch(/answered by a person: run "rondo answer" in a terminal/)
  })
})
