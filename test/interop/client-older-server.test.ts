/** Our client and servers of older eras: the official ones of both generations, and our own when held to it. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connect } from '../../packages/rondo/src/client.ts'
import { generateKey, type Listening } from '../../packages/rondo/src/index.ts'
import { createOwnServer } from '../support/own-server.ts'
import { processFile } from '../support/process-file.ts'
import { serveV1, type V1Http } from '../support/v1-server.ts'
import { describeOlder, scripted } from './older-suite.ts'

const keys = generateKey('k1')
const own = createOwnServer(keys)
let listening: Listening
let v1: V1Http

beforeAll(async () => {
  listening = await own.listen({ port: 0, signals: false })
  v1 = await serveV1()
})

afterAll(async () => {
  await own.close()
  await v1.close()
})

const start = (file: string) => ({
  command: process.execPath,
  args: [processFile(`test/support/${file}`)],
  env: { RONDO_KEYS: keys },
  stderr: 'ignore' as const,
})

const version = '2025-11-25'
const held = { version, options: { mode: version } } as const
const draft = { version: 'DRAFT-2026-v1', options: { mode: 'DRAFT-2026-v1' }, rounds: true } as const

describeOlder({ name: 'v1', version: '1.32.0' }, [
  ['HTTP', { target: () => v1.url, version }],
  ['HTTP by fetch', { target: () => v1.url, version, options: { fetch } }],
  ['stdio', { target: () => start('v1-stdio.ts'), version, brief: true }],
])

describeOlder({ name: 'official', version: '2.4.0' }, [
  ['stdio', { target: () => start('official-stdio.ts'), ...held, brief: true }],
])

describeOlder({ name: 'own', version: '1.0.0' }, [
  ['HTTP', { target: () => listening.url, ...held }],
  ['stdio', { target: () => start('own-stdio.ts'), ...held, brief: true }],
  ['HTTP in the draft', { target: () => listening.url, ...draft }],
])

const textOf = (result: { content: readonly unknown[] }) => (result.content[0] as { text: string }).text

describe('our own server', () => {
  it.each(['DRAFT-2026-v1', '2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const)(
    'C5 is answered by the same handlers in %s',
    async (mode) => {
      await using client = await connect(listening.url, {
        mode,
        answers: {
          sampling: () => ({ role: 'assistant', content: { type: 'text', text: 'yes' }, model: 'm' }),
          roots: [{ uri: 'file:///srv' }],
        },
      })
      expect(client.protocolVersion).toBe(mode)
      const given = JSON.parse(textOf(await client.callTool('ask_model')))
      expect(given).toMatchObject({ idea: { model: 'm' }, where: { roots: [{ uri: 'file:///srv' }] } })
    },
  )
})

describe('a session with the official server of the first generation', () => {
  it('begins with a handshake and ends with DELETE', async () => {
    v1.seen.length = 0
    const client = await connect(v1.url)
    await client.callTool('add', { a: 1, b: 1 })
    await client.close()
    expect(v1.seen.filter((one) => one !== 'GET')).toEqual([
      'POST server/discover',
      'POST initialize',
      'POST notifications/initialized',
      'POST tools/call',
      'DELETE',
    ])
    expect(v1.seen).toContain('GET')
  })

  it('C5 answers a question on the stream of the session', async () => {
    await using client = await connect(v1.url, scripted())
    expect(textOf(await client.callTool('greet_elsewhere'))).toBe('Hello, Ada!')
  })

  it('is opened again if the server no longer knows it', async () => {
    await using client = await connect(v1.url, scripted())
    expect(textOf(await client.callTool('greet'))).toBe('Hello, Ada!')
    v1.forget()
    expect((await client.listTools()).length).toBeGreaterThan(5)
    v1.forget()
    expect(textOf(await client.callTool('greet'))).toBe('Hello, Ada!')
  })

  it('C12 tells the server about a cancelled call', async () => {
    await using client = await connect(v1.url)
    const before = Number(textOf(await client.callTool('cancelled')))
    const controller = new AbortController()
    const call = client.callTool('hang', {}, { signal: controller.signal })
    v1.seen.length = 0
    await expect.poll(() => v1.seen).toContain('POST tools/call')
    controller.abort(new Error('enough'))
    await expect(call).rejects.toThrow('enough')
    await expect.poll(async () => Number(textOf(await client.callTool('cancelled')))).toBe(before + 1)
  })

  it('passes to a call the notifications that it asked for, and no others', async () => {
    await using client = await connect(v1.url)
    const heard: unknown[] = []
    const onLog = ({ data }: { data: unknown }) => heard.push(data)
    await client.callTool('talk', {}, { onLog, logLevel: 'debug' })
    await client.callTool('talk', {}, { onLog, logLevel: 'warning' })
    await client.callTool('talk')
    expect(heard).toEqual(['a debug', 'a warning', 'a warning'])
  })

  it('reports changes of lists and of subscribed resources', async () => {
    await using client = await connect(v1.url)
    const uri = 'test://report'
    const changes = client.subscribe({ toolsListChanged: true, resourceSubscriptions: [uri] })
    expect(await changes.filter).toEqual({ toolsListChanged: true, resourceSubscriptions: [uri] })
    expect(JSON.parse(textOf(await client.callTool('watched')))).toEqual([uri])
    await client.callTool('touch', { uri })
    const seen: unknown[] = []
    for await (const change of changes) {
      seen.push(change)
      if (seen.length === 2) break
    }
    expect(seen).toEqual(expect.arrayContaining([{ kind: 'tools' }, { kind: 'resource', uri }]))
    await expect.poll(async () => textOf(await client.callTool('watched'))).toBe('[]')
  })
})
