/** A host that declares nothing and ends calls at 60 s, with the real clock: it has a handle by then. Needs the build. */

import { resolve } from 'node:path'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { describe, expect, it, onTestFinished } from 'vitest'
import { fillIn } from '../support/terminal-session.ts'
import { useCliHome, useTerminal } from '../support/use-cli.ts'
import { connectV1 } from '../support/v1-client.ts'
import { serveV1 } from '../support/v1-server.ts'
import { serveOfficial } from './peers.ts'

const RONDO = resolve('packages/cli/dist/cli.js')
const LIMIT_MS = 60_000
const home = useCliHome()
const open = useTerminal(home)

const SERVERS = {
  'a server that returns its questions': serveOfficial,
  async 'a server that pushes its questions'() {
    const { url, close } = await serveV1()
    onTestFinished(close)
    return url
  },
}

async function host(ask: string, url: string) {
  const args = [RONDO, 'bridge', '--ask', ask, url]
  const transport = new StdioClientTransport({
    command: process.execPath,
    args,
    env: home.env,
    stderr: 'ignore',
  })
  const client = await connectV1(transport as never, {})
  onTestFinished(() => client.close())
  return async (name: string, given: Record<string, unknown> = {}) => {
    const options = { timeout: LIMIT_MS, maxTotalTimeout: LIMIT_MS }
    const { content } = await client.client.callTool({ name, arguments: given }, undefined, options)
    return (content as { text: string }[])[0]?.text ?? ''
  }
}

describe.each(Object.entries(SERVERS))('a host that ends calls at 60 s, before %s', (_name, serve) => {
  it('gets a handle, and the result once the person has answered', async () => {
    const call = await host('terminal', await serve())
    const handle = await call('greet')
    expect(handle).toMatch(/in a terminal of the user, with the command "rondo answer"/)
    const [, id = ''] = /"id": "([\w-]+)"/.exec(handle) ?? []
    await fillIn(open('answer'), 'Name', 'Ada')
    expect(await call('task_status', { id, count: 1 })).toBe('Hello, Ada!')
  })

  it('control: reads at once that nobody can be asked, with --ask host', async () => {
    const call = await host('host', await serve())
    expect(await call('greet').catch((error: Error) => error.message)).toMatch(/elicitation|asked/i)
  })
})
