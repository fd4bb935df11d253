import { describe, expect, it } from 'vitest'
import { DISCOVERY } from '../../../../../test/support/scripted-server.ts'
import { connect } from '../connect.ts'

/** A server as a Node program: `answer` gets each message and `send`. */
function program(answer: string) {
  const source = `
    const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n')
    const discovery = ${JSON.stringify(DISCOVERY)}
    const answer = ${answer}
    require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
      const message = JSON.parse(line)
      if (message.method === 'server/discover') send({ id: message.id, result: discovery })
      else answer(message, send)
    })`
  return { command: process.execPath, args: ['-e', source], stderr: 'ignore' as const }
}

const text = (value: string) => `{ content: [{ type: 'text', text: ${value} }] }`
const textOf = (result: { content: readonly unknown[] }) => (result.content[0] as { text: string }).text

describe('a server process', () => {
  it('C3 C4 answers in any order', async () => {
    const target = program(`(message, send) => {
      const go = () => send({ id: message.id, result: ${text('message.params.name')} })
      message.params.name === 'slow' ? globalThis.later = go : (go(), globalThis.later?.())
    }`)
    await using client = await connect(target)
    const results = await Promise.all([client.callTool('slow'), client.callTool('fast')])
    expect(results.map(textOf)).toEqual(['slow', 'fast'])
  })

  it('C12 is told when a call is cancelled, and its late response is ignored', async () => {
    const target = program(`(message, send) => {
      if (message.method === 'notifications/cancelled') globalThis.cancelled = message.params.requestId
      else if (message.params.name === 'hang') globalThis.hanging = message.id
      else {
        send({ id: globalThis.hanging, result: ${text("'late'")} })
        send({ id: message.id, result: ${text('String(globalThis.cancelled === globalThis.hanging)')} })
      }
    }`)
    await using client = await connect(target)
    const controller = new AbortController()
    const call = client.callTool('hang', {}, { signal: controller.signal })
    controller.abort(new Error('stop'))
    await expect(call).rejects.toThrow('stop')
    expect(textOf(await client.callTool('check'))).toBe('true')
  })

  it('N3 may refuse the only request that waits without its id', async () => {
    const target = program(`(message, send) => {
      if (message.params.name === 'hang') return
      send({ id: null, error: { code: -32600, message: 'Too many keys' } })
      if (message.params.name === 'beside') send({ id: message.id, result: ${text("'done'")} })
    }`)
    await using client = await connect(target)
    await expect(client.callTool('refused')).rejects.toMatchObject({ peer: { code: -32600 } })
    const controller = new AbortController()
    const hanging = client.callTool('hang', {}, { signal: controller.signal })
    expect(textOf(await client.callTool('beside'))).toBe('done')
    controller.abort(new Error('stop'))
    await expect(hanging).rejects.toThrow('stop')
  })

  it('F2 gets back the exact state of its requests', async () => {
    const target = program(`(message, send) => {
      if (message.method === 'initialize') send({ id: message.id, result: {
        protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'old', version: '1' } } })
      else if (message.method === 'tools/call') {
        globalThis.call = message.id
        send({ id: 'p', method: 'ping', state: { a: [1] } })
      } else if (message.id === 'p') send({ id: globalThis.call, result: ${text('JSON.stringify(message)')} })
    }`)
    await using client = await connect(target, { mode: '2025-11-25' })
    const answer = { jsonrpc: '2.0', id: 'p', state: { a: [1] }, result: {} }
    expect(JSON.parse(textOf(await client.callTool('x')))).toEqual(answer)
  })

  it('T22 may write other text between its messages', async () => {
    const warnings: string[] = []
    const target = program(`(message, send) => {
      process.stdout.write('debug: hello\\n[]\\n\\n')
      send({ id: 'other', method: 'sampling/createMessage', params: {} })
      send({ id: 999, result: {} })
      send({ id: message.id, result: ${text("'fine'")} })
    }`)
    await using client = await connect(target, { onWarning: (warning) => warnings.push(warning) })
    expect(textOf(await client.callTool('x'))).toBe('fine')
    expect(warnings).toHaveLength(3)
  })

  it('T22 cannot exhaust memory with one long line', async () => {
    const target = program(`() => setInterval(() => process.stdout.write('x'.repeat(65536)), 1)`)
    await using client = await connect(target, { maxResponseBytes: 100_000 })
    await expect(client.callTool('x')).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
  })

  it('fails its calls when it dies', async () => {
    await using client = await connect(program(`() => process.exit(3)`))
    await expect(client.callTool('x')).rejects.toThrowError(/PEER_UNREACHABLE.*exit code 3/)
    await expect(client.callTool('x')).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
  })

  it('fails its calls when it closes its stdout and goes on running', async () => {
    await using client = await connect(program(`() => require('node:fs').closeSync(1)`))
    await expect(client.callTool('work')).rejects.toThrow('The server closed its stdout')
    await expect(client.callTool('work')).rejects.toThrow('The server closed its stdout')
  })

  it('gets the given variables and no secrets from our environment', async () => {
    process.env.RONDO_TEST_SECRET = 'do not tell'
    const target = program(`(message, send) => {
      const { RONDO_TEST_SECRET: secret, GIVEN: given, PATH: path } = process.env
      send({ id: message.id, result: ${text('JSON.stringify([secret, given, typeof path])')} })
    }`)
    await using client = await connect({ ...target, env: { GIVEN: 'yes' } })
    expect(JSON.parse(textOf(await client.callTool('x')))).toEqual([null, 'yes', 'string'])
  })

  it('is not started through a shell', async () => {
    const target = { command: 'echo hello; true', stderr: 'ignore' } as const
    await expect(connect(target)).rejects.toThrowError(/PEER_UNREACHABLE.*could not be started/)
  })

  it.each([
    ['no-such-command', /"no-such-command" could not be started \(ENOENT\): no such command/],
    [import.meta.filename, /could not be started \(EACCES\): the file is not executable/],
  ])('is reported with the reason why it does not start: %s', async (command, message) => {
    await expect(connect({ command, stderr: 'ignore' })).rejects.toThrowError(message)
  })

  it('has its stderr passed on line by line', async () => {
    const lines: string[] = []
    const target = program(`(message, send) => {
      process.stderr.write('one\\ntwo\\n', () => send({ id: message.id, result: ${text("''")} }))
    }`)
    const client = await connect({ ...target, stderr: (line) => lines.push(line) })
    await client.callTool('x')
    await client.close()
    expect(lines).toEqual(['one', 'two'])
  })

  it('is killed if it does not exit by itself', async () => {
    const { createStdioTransport } = await import('./stdio.ts')
    const source = `process.on('SIGTERM', () => {}); setInterval(() => {}, 1000); process.stdout.write('{}\\n')`
    const target = { command: process.execPath, args: ['-e', source], stderr: 'ignore' } as const
    const transport = createStdioTransport(target, { maxBytes: 1_000, graceMs: 50 })
    const { signal } = new AbortController()
    const call = transport.exchange({ id: 1, body: '{}', headers: {}, signal, maxBytes: 1_000 })
    const failed = expect(call).rejects.toThrowError(/SIGKILL|SIGTERM/)
    await transport.close()
    await failed
  })
})
