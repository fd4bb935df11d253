/**
 * T22: whatever JSON a server puts where another value belongs, the command ends with an exit code of its own and a sentence,
 * never with an internal error. The server is honest but for one value of its responses.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { createStatusLine, type Io } from '../../packages/cli/src/io.ts'
import { main } from '../../packages/cli/src/main.ts'

const WHEN = '2026-07-28T09:30:00Z'
const TASK = {
  taskId: 'task-1',
  status: 'input_required',
  createdAt: WHEN,
  lastUpdatedAt: WHEN,
  ttlMs: 60_000,
}
const SCHEMA = { type: 'object', properties: { name: { type: 'string', title: 'Name' } }, required: ['name'] }
const QUESTIONS = {
  who: { method: 'elicitation/create', params: { mode: 'form', message: 'Who?', requestedSchema: SCHEMA } },
  go: {
    method: 'elicitation/create',
    params: { mode: 'url', message: 'Go', url: 'https://a.example/', elicitationId: 'e' },
  },
}
const BLOCKS = [
  { type: 'text', text: 'x' },
  { type: 'image', data: 'aaaa', mimeType: 'image/png' },
  { type: 'resource', resource: { uri: 'a:b', text: 'x' } },
  { type: 'resource_link', uri: 'a:b', name: 'x' },
]
const TOOL = {
  name: 't',
  title: 'T',
  description: 'd',
  inputSchema: SCHEMA,
  annotations: { readOnlyHint: true },
}

/** The honest result of each method. */
const HONEST: Readonly<Record<string, unknown>> = {
  'server/discover': {
    resultType: 'complete',
    supportedVersions: ['2026-07-28'],
    capabilities: { tools: {}, prompts: {}, resources: {} },
    instructions: 'x',
    _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'n', version: '1', title: 't' } },
  },
  'tools/list': { resultType: 'complete', ttlMs: 0, cacheScope: 'private', tools: [TOOL] },
  'prompts/list': {
    resultType: 'complete',
    prompts: [{ name: 'p', description: 'd', arguments: [{ name: 'a', required: true }] }],
  },
  'resources/list': { resultType: 'complete', resources: [{ uri: 'a:b', name: 'r', description: 'd' }] },
  'resources/templates/list': {
    resultType: 'complete',
    resourceTemplates: [{ uriTemplate: 'a:{b}', name: 'r' }],
  },
  'tools/call': { resultType: 'complete', content: BLOCKS, structuredContent: { a: 1 }, isError: false },
  'prompts/get': {
    resultType: 'complete',
    messages: BLOCKS.map((content) => ({ role: 'user', content })),
  },
  'resources/read': {
    resultType: 'complete',
    contents: [
      { uri: 'a:b', text: 'x' },
      { uri: 'a:b', blob: 'aaaa', mimeType: 'x/y' },
    ],
  },
  'tasks/get': { resultType: 'complete', ...TASK, statusMessage: 'm', inputRequests: QUESTIONS },
}
const ASKS = { resultType: 'input_required', requestState: 's', inputRequests: QUESTIONS }
const MAKES_TASK = { resultType: 'task', ...TASK, status: 'working' }

/** Values that code which trusts a type does not survive. */
const odd = fc.constantFrom<unknown>(
  ...[null, true, -1, 1e308, '', 'x', '\u001b[2J\ud800', [], {}, [null], [[]], { toString: 1, valueOf: 1 }],
  ...[{ toJSON: 'x' }, { length: -1 }, JSON.parse('{"__proto__":{"a":1}}'), 'x'.repeat(5_000)],
  nested(900),
)

function nested(levels: number): unknown {
  return JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`)
}

/** The paths of all values in a result. */
function pathsOf(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [path]
  return [path, ...Object.entries(value).flatMap(([key, child]) => pathsOf(child, [...path, key]))]
}

function replaced(value: unknown, [key, ...rest]: readonly string[], by: unknown): unknown {
  if (key === undefined) return by
  const copy = structuredClone(value) as Record<string, unknown>
  copy[key] = replaced(copy[key], rest, by)
  return copy
}

let server: Server
let url = ''
let results: Record<string, unknown> = {}
let answer: ((response: ServerResponse) => void) | undefined
let home = ''

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'rondo-hostile-'))
  server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    if (answer !== undefined) return answer(response)
    const { id, method } = body === '' ? { id: 0, method: '' } : JSON.parse(body)
    const result = { ...HONEST, ...results }[method]
    const known = { jsonrpc: '2.0', id, result }
    const unknown = { jsonrpc: '2.0', id, error: { code: -32_601, message: 'no' } }
    response
      .writeHead(result === undefined ? 404 : 200, { 'Content-Type': 'application/json' })
      .end(JSON.stringify(result === undefined ? unknown : known))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
})

afterAll(() => {
  server.closeAllConnections()
  server.close()
  rmSync(home, { recursive: true })
})

async function run(args: readonly string[]): Promise<{ exit: number; written: string }> {
  let written = ''
  const output = (): NodeJS.WriteStream => {
    const stream = new PassThrough()
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      written += chunk
    })
    return Object.assign(stream, { isTTY: true, columns: 100 }) as unknown as NodeJS.WriteStream
  }
  const stderr = output()
  const io: Io = {
    ...{ stdin: new PassThrough() as unknown as NodeJS.ReadStream, stdout: output(), stderr },
    ...{ status: createStatusLine(stderr), env: { RONDO_HOME: home, TERM: 'dumb' }, cwd: '/', now: () => 0 },
    signal: new AbortController().signal,
  }
  const exit = await main(args, io)
  return { exit, written }
}

/** The methods whose results a command reads, and the arguments of the command after the server. */
const COMMANDS: readonly [words: string[], method: string, result: unknown][] = [
  [['tools'], 'server/discover', HONEST['server/discover']],
  [['tools'], 'tools/list', HONEST['tools/list']],
  [['tools', '--json'], 'tools/list', HONEST['tools/list']],
  [['prompts'], 'prompts/list', HONEST['prompts/list']],
  [['resources'], 'resources/list', HONEST['resources/list']],
  [['resources'], 'resources/templates/list', HONEST['resources/templates/list']],
  [['call', 't', 'name=x'], 'tools/list', HONEST['tools/list']],
  [['call', 't', 'name=x'], 'tools/call', HONEST['tools/call']],
  [['call', 't', 'name=x', '--json'], 'tools/call', HONEST['tools/call']],
  [['call', 't', 'name=x'], 'tools/call', ASKS],
  [['call', 't', 'name=x', '--detach'], 'tools/call', MAKES_TASK],
  [['prompt', 'p', 'a=1'], 'prompts/get', HONEST['prompts/get']],
  [['read', 'a:b'], 'resources/read', HONEST['resources/read']],
  [['task', 'get', 'task-1'], 'tasks/get', HONEST['tasks/get']],
]
const runs = process.env.RONDO_LONG === '1' ? 500 : 15
const { fault } = EXITS

describe('the command, with a server that sends one odd value', () => {
  it.each(COMMANDS)(
    'R11 I8 %j ends with a sentence whatever is in %s',
    async ([name = '', ...words], method, honest) => {
      const args = name === 'task' ? [name, words[0] ?? '', url, ...words.slice(1)] : [name, url, ...words]
      await fc.assert(
        fc.asyncProperty(fc.constantFrom(...pathsOf(honest)), odd, async (path, value) => {
          results = { [method]: replaced(honest, path, value) }
          const { exit, written } = await run(args)
          expect(written).not.toMatch(/(?:Type|Range|Reference)Error|at .*\.ts:/)
          expect(exit).not.toBe(fault.code)
        }),
        { numRuns: runs },
      )
    },
  )

  it('control: it ends well where nothing is odd', async () => {
    for (const [[name = '', ...words], method, honest] of COMMANDS) {
      results = { [method]: honest }
      const args = name === 'task' ? [name, words[0] ?? '', url, ...words.slice(1)] : [name, url, ...words]
      const { exit, written } = await run(args)
      expect([0, 3], `${name} ${words.join(' ')}: ${written}`).toContain(exit)
    }
  })

  it('R11 examines such a server', async () => {
    const methods = ['server/discover', 'tools/list', 'tools/call'] as const
    const place = fc
      .constantFrom(...methods)
      .chain((method) => fc.tuple(fc.constant(method), fc.constantFrom(...pathsOf(HONEST[method]))))
    await fc.assert(
      fc.asyncProperty(place, odd, async ([method, path], value) => {
        results = { 'tools/call': ASKS, [method]: replaced(HONEST[method], path, value) }
        const { exit, written } = await run(['doctor', url])
        expect(written).not.toMatch(/(?:Type|Range|Reference)Error|at .*\.ts:/)
        expect(exit).not.toBe(fault.code)
      }),
      { numRuns: Math.ceil(runs / 2) },
    )
  })
})
