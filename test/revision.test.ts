/** A revision is a folder and one line in a list: a codec that is not in `src/` serves calls once it is in the list. */

import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { RequestCodec, SessionCodec } from '../packages/rondo/src/protocol/codec.ts'
import { CODECS, createCodecs } from '../packages/rondo/src/protocol/revisions.ts'
import { createServerWith } from '../packages/rondo/src/serve/server.ts'

const VERSION = '2031-01-01'
const META = 'io.modelcontextprotocol/protocolVersion'

interface ToyRequest {
  readonly id: number
  readonly method: string
  readonly params: {
    tool: string
    with: Record<string, unknown>
    answers?: Record<string, unknown>
    resume?: string
  }
}

const older = CODECS.find((codec) => codec.kind === 'session') as SessionCodec

/** Other names for everything: `tool`, `with`, `answers`, `resume`; a result is `done` or `asks`. */
const TOY: RequestCodec = {
  kind: 'request',
  versions: [VERSION],
  client: older.client,
  decode(message) {
    const { id, params } = message as ToyRequest
    return {
      kind: 'call',
      call: {
        kind: 'flow',
        id,
        protocolVersion: VERSION,
        capabilities: { elicitation: { form: {} } },
        method: 'tools/call',
        target: params.tool,
        args: params.with,
        inputResponses: params.answers,
        requestState: params.resume,
      },
    }
  },
  encodeReply(id, reply) {
    if (reply.kind === 'complete') return JSON.stringify({ toy: id, done: reply.result.content })
    if (reply.kind !== 'input_required') return JSON.stringify({ toy: id, failed: reply.kind })
    return JSON.stringify({
      toy: id,
      asks: Object.keys(reply.inputRequests ?? {}),
      resume: reply.requestState,
    })
  },
}

/** Like 2025-11-25, and names the revision in every result. */
const TOY_SESSION: SessionCodec = {
  kind: 'session',
  versions: ['2024-01-01'],
  client: older.client,
  dialect(version) {
    const base = older.dialect('2025-11-25')
    return {
      ...base,
      encodeReply: (id, reply) => base.encodeReply(id, reply).replace(/\}$/, `,"spoken":"${version}"}`),
    }
  },
}

function start() {
  const server = createServerWith([...CODECS, TOY, TOY_SESSION], {
    name: 'toys',
    version: '1',
    log: 'off',
    sessions: {},
  })
  server.tool('greet', { input: z.object({}) }, async (_args, ctx) => {
    const { name } = await ctx.ask('name', { message: 'Your name?', schema: z.object({ name: z.string() }) })
    return `Hello, ${name}`
  })
  server.tool('add', { input: z.object({ a: z.number(), b: z.number() }) }, ({ a, b }) => `${a + b}`)
  const post = async (body: object, headers: Record<string, string> = {}) => {
    const request = new Request('http://localhost/mcp', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headers,
      },
      body: JSON.stringify(body),
    })
    const response = await server.fetch(request)
    return { response, json: JSON.parse(await response.text()) }
  }
  return { server, post }
}

describe('a revision registered from outside src/', () => {
  const call = (params: object) => ({
    method: 'toy/call',
    id: 1,
    params: { ...params, _meta: { [META]: VERSION } },
  })

  it('serves a call that asks, and its retry, in the new revision', async () => {
    const { server, post } = start()
    const first = await post(call({ tool: 'greet', with: {} }))
    expect(first.json).toEqual({ toy: 1, asks: ['name'], resume: expect.any(String) })
    const answers = { name: { action: 'accept', content: { name: 'Ada' } } }
    const retry = await post(call({ tool: 'greet', with: {}, answers, resume: first.json.resume }))
    expect(retry.json).toEqual({ toy: 1, done: [{ type: 'text', text: 'Hello, Ada' }] })
    await server.close()
  })

  it('serves a call in a session of the new revision', async () => {
    const { server, post } = start()
    const hello = { protocolVersion: '2024-01-01', capabilities: {}, clientInfo: { name: 'c', version: '1' } }
    const opened = await post({ jsonrpc: '2.0', id: 1, method: 'initialize', params: hello })
    expect(opened.json).toMatchObject({ result: { protocolVersion: '2024-01-01' }, spoken: '2024-01-01' })
    const params = { name: 'add', arguments: { a: 2, b: 3 } }
    const session = opened.response.headers.get('mcp-session-id') ?? ''
    const added = await post(
      { jsonrpc: '2.0', id: 2, method: 'tools/call', params },
      { 'mcp-session-id': session },
    )
    expect(added.json).toMatchObject({ id: 2, result: { content: [{ text: '5' }] }, spoken: '2024-01-01' })
    await server.close()
  })

  it('does not change the published revisions', () => {
    const codecs = createCodecs([...CODECS, TOY, TOY_SESSION])
    expect(codecs.requestVersions).toEqual(['2026-07-28', VERSION])
    expect(codecs.requests.get('2026-07-28')).toBe(CODECS[0])
    expect(codecs.requests.get('unknown')).toBeUndefined()
    expect(codecs.newest).toBe(CODECS[0])
    expect(codecs.sessionVersions.at(-1)).toBe('2024-01-01')
  })
})
