import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { callTool, createEchoService, request } from '../../../../../test/support/echo-service.ts'
import { type StdioOptions, serveStdio } from './stdio.ts'

type Message = Record<string, unknown> & { error?: { code: number }; result?: Record<string, unknown> }

function start(options: StdioOptions = {}) {
  const service = createEchoService()
  const input = new PassThrough()
  const output = new PassThrough()
  const serving = serveStdio(service, { input, output, signals: false, graceMs: 1000, ...options })
  const lines = createLines(output)
  const send = (message: unknown) => input.write(`${JSON.stringify(message)}\n`)
  return { service, input, output, serving, send, ...lines }
}

function createLines(output: PassThrough) {
  let rest = ''
  const ready: Message[] = []
  const waiting: ((message: Message) => void)[] = []
  output.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) {
      const message = JSON.parse(line)
      const next = waiting.shift()
      if (next) next(message)
      else ready.push(message)
    }
  })
  const next = (): Promise<Message> => {
    const message = ready.shift()
    return message ? Promise.resolve(message) : new Promise((resolve) => waiting.push(resolve))
  }
  return { next, ready, rest: () => rest }
}

const cancelled = (requestId: unknown) => ({
  jsonrpc: '2.0',
  method: 'notifications/cancelled',
  params: { requestId },
})

describe('stdio', () => {
  it('responds to each line with one line, without any header', async () => {
    const { send, next } = start()
    send(callTool('echo', { a: 'line\nbreak' }).message)
    expect((await next()).result?.content).toEqual([{ type: 'text', text: '{"a":"line\\nbreak"}' }])
    send(request('server/discover', {}, 'd').message)
    expect(await next()).toMatchObject({ id: 'd', result: { resultType: 'complete' } })
  })

  it.each([
    ['garbage', 'hello', -32700],
    ['half a message', '{"jsonrpc":', -32700],
    ['100,000 open brackets', '['.repeat(100_000), -32600],
    ['a response', '{"jsonrpc":"2.0","id":null,"result":{}}', -32600],
    ['a duplicate key', '{"id":1,"id":2}', -32600],
  ])('responds to %s with an error and continues', async (_, line, code) => {
    const { input, send, next } = start()
    input.write(`${line}\n`)
    expect(await next()).toMatchObject({ id: null, error: { code } })
    send(callTool('echo').message)
    expect((await next()).result).toBeDefined()
  })

  it.each(['throws', 'returns what cannot be encoded'])('R11 continues if the service %s', async (fault) => {
    const faults: unknown[] = []
    const { service, send, next } = start({ onError: (error) => faults.push(error) })
    const { handle } = service
    service.handle = async () => ({ kind: 'complete', result: { n: 1n } })
    if (fault === 'throws') {
      service.handle = () => {
        throw new Error('canary')
      }
    }
    send(callTool('echo').message)
    expect(await next()).toMatchObject({ error: { code: -32603, message: 'Internal error' } })
    if (fault === 'throws') expect(faults).toHaveLength(1)
    service.handle = handle
    send(callTool('echo').message)
    expect((await next()).result).toBeDefined()
  })

  it('R11 survives an output that fails with every write', async () => {
    const { output, serving } = start()
    output.emit('error', new Error('EPIPE'))
    output.emit('error', new Error('EPIPE'))
    await serving.done
    output.emit('error', new Error('EPIPE'))
  })

  it('reads lines in any pieces, blank lines, Windows line breaks and a last line without a line break', async () => {
    const { input, next } = start()
    const text = `\n  \n${JSON.stringify(request('tools/call', { name: 'echo', arguments: { é: '日本' } }, 1).message)}\r\n`
    for (const byte of Buffer.from(text)) input.write(Buffer.from([byte]))
    expect(await next()).toMatchObject({ id: 1, result: { content: [{ text: '{"é":"日本"}' }] } })
    input.end(JSON.stringify(request('server/discover', {}, 2).message))
    expect((await next()).id).toBe(2)
  })

  it('refuses a line that is too long once, and reads the next', async () => {
    const { input, send, next } = start({ maxLineBytes: 1000 })
    for (let i = 0; i < 10; i++) input.write('x'.repeat(500))
    input.write('\n')
    expect((await next()).error?.code).toBe(-32000)
    send(callTool('echo').message)
    expect((await next()).result).toBeDefined()
  })

  it('refuses bytes that are not UTF-8', async () => {
    const { input, next } = start()
    input.write(Buffer.from([0x22, 0xff, 0x22, 0x0a]))
    expect((await next()).error?.code).toBe(-32700)
  })

  it('sends progress before the response', async () => {
    const { service, send, next } = start()
    send(callTool('slow', {}, { _meta: { progressToken: 1 } }).message)
    await service.waiting()
    service.release()
    expect((await next()).method).toBe('notifications/progress')
    expect((await next()).method).toBe('notifications/progress')
    expect((await next()).result).toBeDefined()
  })

  it('writes nothing more for a request that the client cancelled', async () => {
    const { service, send, next, ready } = start()
    send(request('tools/call', { name: 'slow' }, 'a').message)
    await next()
    const line = await service.waiting()
    let closes = 0
    line.onClose(() => closes++)
    send(cancelled('b'))
    send(cancelled('a'))
    send(cancelled('a'))
    send(request('tools/call', { name: 'echo' }, 'c').message)
    expect((await next()).id).toBe('c')
    expect(line.closed).toBe(true)
    expect(closes).toBe(1)
    service.release()
    send(request('tools/call', { name: 'echo' }, 'd').message)
    expect((await next()).id).toBe('d')
    expect(ready).toEqual([])
  })

  it('refuses an id that is still open, and keeps 1 and "1" apart', async () => {
    const { service, send, next } = start()
    send(request('tools/call', { name: 'slow' }, 1).message)
    await next()
    await service.waiting()
    send(request('tools/call', { name: 'echo' }, 1).message)
    expect(await next()).toMatchObject({ id: 1, error: { code: -32600 } })
    send(request('tools/call', { name: 'echo' }, '1').message)
    expect(await next()).toMatchObject({ id: '1', result: {} })
    service.release()
  })

  it('ends at the end of the input, after the calls in flight', async () => {
    const { service, input, send, next, serving } = start()
    send(request('tools/call', { name: 'slow' }, 1).message)
    await next()
    await service.waiting()
    input.end()
    service.release()
    await serving.done
    await next()
    expect((await next()).id).toBe(1)
  })

  it('ends after the grace period even if a call does not', async () => {
    const { service, input, send, serving } = start({ graceMs: 5 })
    send(callTool('slow').message)
    const line = await service.waiting()
    input.end()
    await serving.done
    expect(line.closed).toBe(true)
  })

  it('drains when it is closed: refuses new calls and finishes open ones', async () => {
    const { service, send, next, serving } = start()
    send(request('tools/call', { name: 'slow' }, 1).message)
    await next()
    await service.waiting()
    const closed = serving.close()
    send(request('tools/call', { name: 'echo' }, 2).message)
    expect(await next()).toMatchObject({ id: 2, error: { code: -32000 } })
    service.release()
    await closed
    await next()
    expect((await next()).id).toBe(1)
  })

  it('stops reading while the client does not read', async () => {
    const service = createEchoService()
    const input = new PassThrough()
    const output = new PassThrough({ highWaterMark: 10 })
    serveStdio(service, { input, output, signals: false })
    const send = (i: number) => input.write(`${JSON.stringify(callTool('echo', { i }).message)}\n`)
    send(0)
    // The response to the first line fills the output.
    await expect.poll(() => output.writableNeedDrain).toBe(true)
    for (let i = 1; i < 50; i++) send(i)
    await new Promise((resolve) => setImmediate(resolve))
    expect(service.seen.length).toBe(1)
    output.resume()
    await expect.poll(() => service.seen.length).toBe(50)
  })

  it.each([undefined, new Error('EPIPE')])(
    'treats a closed output as a client that has gone',
    async (error) => {
      const { service, output, send, serving } = start()
      send(callTool('slow').message)
      const line = await service.waiting()
      const gone = new Promise<void>((resolve) => line.onClose(resolve))
      output.destroy(error)
      await gone
      expect(line.closed).toBe(true)
      service.release()
      await serving.done
    },
  )
})

describe('subscriptions over stdio', () => {
  const listen = (id: string) =>
    request('subscriptions/listen', { notifications: { toolsListChanged: true } }, id).message
  const ID = 'io.modelcontextprotocol/subscriptionId'

  it('share the output and name themselves', async () => {
    const { service, send, next } = start()
    send(listen('a'))
    send(listen('b'))
    expect(await next()).toMatchObject({ params: { _meta: { [ID]: 'a' } } })
    expect(await next()).toMatchObject({ params: { _meta: { [ID]: 'b' } } })
    service.changes.publish({ kind: 'tools' })
    expect(await next()).toMatchObject({ params: { _meta: { [ID]: 'a' } } })
    expect(await next()).toMatchObject({ params: { _meta: { [ID]: 'b' } } })
  })

  it('end without a message when the client cancels them', async () => {
    const { service, send, next } = start()
    send(listen('a'))
    await next()
    send(cancelled('a'))
    send(request('server/discover', {}, 'd').message)
    expect((await next()).id).toBe('d')
    service.changes.publish({ kind: 'tools' })
    send(listen('a'))
    expect((await next()).method).toBe('notifications/subscriptions/acknowledged')
  })

  it('end with their result when the server closes', async () => {
    const { send, next, serving } = start()
    send(listen('a'))
    await next()
    await serving.close()
    expect(await next()).toMatchObject({ id: 'a', result: { resultType: 'complete' } })
  })

  it('release their id if there is nothing to be notified of', async () => {
    const { send, next } = start()
    const empty = request('subscriptions/listen', { notifications: {} }, 'a').message
    send(empty)
    await next()
    expect((await next()).id).toBe('a')
    send(empty)
    expect((await next()).method).toBe('notifications/subscriptions/acknowledged')
  })

  it('are limited', async () => {
    const { send, next } = start({ maxSubscriptions: 1 })
    send(listen('a'))
    await next()
    send(listen('b'))
    expect(await next()).toMatchObject({ id: 'b', error: { code: -32603 } })
  })
})
