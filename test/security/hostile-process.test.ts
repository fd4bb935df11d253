/** T22: a malicious server as a process: what it writes, what it does not read, and what it leaves behind. */

import { describe, expect, it, onTestFinished } from 'vitest'
import { createStdioTransport } from '../../packages/rondo/src/client/transport/stdio.ts'
import { type ConnectOptions, connect } from '../../packages/rondo/src/client.ts'
import { DISCOVERY } from '../support/scripted-server.ts'

/** A server as a Node program that runs `onCall` for a tool call; `message` is the call. */
function program(onCall: string) {
  const source = `
    const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n')
    const finish = (text) => send({ id: message.id, result: { content: [{ type: 'text', text }] } })
    let message
    require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
      message = JSON.parse(line)
      if (message.method === 'server/discover') send({ id: message.id, result: ${JSON.stringify(DISCOVERY)} })
      else { ${onCall} }
    })`
  return { command: process.execPath, args: ['-e', source], stderr: 'ignore' as const }
}

async function called(onCall: string, options: ConnectOptions = {}) {
  const warnings: string[] = []
  await using client = await connect(program(onCall), {
    onWarning: (text) => warnings.push(text),
    ...options,
  })
  const outcome = await client.callTool('t').catch((error: Error) => error.message)
  return { outcome, warnings }
}

const done = { content: [{ type: 'text', text: 'done' }] }

describe('a hostile process', () => {
  it('R11 does not keep the client from closing by a process that holds its pipes', async () => {
    const target = program(`
      const inherit = ['ignore', 'inherit', 'inherit']
      const child = require('node:child_process').spawn('sleep', ['600'], { stdio: inherit, detached: true })
      child.unref()
      finish(String(child.pid))`)
    const client = await connect(target)
    const { content } = await client.callTool('t')
    const pid = Number((content[0] as { text: string }).text)
    onTestFinished(() => void process.kill(pid))
    await client.close()
    // The control: it is still there, and has the pipes.
    expect(process.kill(pid, 0)).toBe(true)
  })

  it('is given up if it writes nothing but lines that are no messages, which are reported a few times', async () => {
    const { outcome, warnings } = await called(`process.stdout.write('x\\n'.repeat(10_001))`)
    expect(outcome).toMatch(/^\[PEER_UNREACHABLE\] .* lines to stdout that are not messages/)
    expect(warnings).toHaveLength(10)
    const patient = await called(`process.stdout.write('x\\n'.repeat(9_000)); finish('done')`)
    expect(patient.outcome).toEqual(done)
  })

  it('is given up if it writes JSON that nests too deep', async () => {
    const write = (levels: number) =>
      `process.stdout.write('['.repeat(${levels}) + ']'.repeat(${levels}) + '\\n'); finish('done')`
    expect((await called(write(100_000))).outcome).toMatch(/^\[PEER_UNREACHABLE\] .* cannot be read/)
    expect((await called(write(900))).outcome).toEqual(done)
  })

  it('is given up if it does not read what it is sent, and not if it does', async () => {
    const open = (source: string) => {
      const transport = createStdioTransport(
        { command: process.execPath, args: ['-e', source], stderr: 'ignore' },
        { maxBytes: 10_000, graceMs: 50 },
      )
      onTestFinished(() => transport.close())
      const { signal } = new AbortController()
      return (body: string, id = 1, oneWay = true) =>
        transport.exchange({ id, body, headers: {}, signal, maxBytes: 10_000, oneWay })
    }
    const body = 'x'.repeat(100_000)
    const deaf = open('setInterval(() => {}, 1_000)')
    const send = async () => {
      for (let turn = 0; turn < 10; turn++) await deaf(body)
    }
    await expect(send()).rejects.toMatchObject({ message: expect.stringMatching(/does not read/) })
    const echo = `let size = 0
      process.stdin.on('data', (chunk) => {
        for (const byte of chunk) if (byte === 10) process.stdout.write(JSON.stringify({ id: ++size }) + '\\n')
      })`
    const honest = open(echo)
    for (let turn = 1; turn <= 10; turn++) expect(await honest(body, turn, false)).toEqual({ id: turn })
  })
})
