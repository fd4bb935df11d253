/** Tools that keep to the official way of asking: wrapped by us, and beside tools of ours on one server. */

import {
  type CallToolResult,
  createRequestStateCodec,
  inputRequired,
  type McpServer,
} from '@modelcontextprotocol/server'
import { createBench, type TestBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { mountedServer, type Register } from '../support/sdk-bench.ts'

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })
const ok = { sure: { confirm: true } }

type Options = Parameters<typeof mountedServer>[2]

const benchOf = (register: Register, options?: Options): TestBench =>
  createBench((bench) => mountedServer({ ...bench, audience: 'mounted', dev: false }, register, options))

describe('a handler that asks in the official way', () => {
  const register: Register = (server, rondo) =>
    server.registerTool(
      'by_hand',
      {},
      rondo.tool(async (_args, { sdk }) => {
        const state = sdk.mcpReq.requestState<string>()
        if (state === undefined) {
          const sure = inputRequired.elicit({
            message: 'Sure?',
            requestedSchema: z.object({ confirm: z.boolean() }),
          })
          return inputRequired({ inputRequests: { sure }, requestState: 'plain words' })
        }
        return text(`${state}, ${Object.keys(sdk.mcpReq.inputResponses ?? {})}`)
      }),
    )

  it('has its state sealed, bound and opened', async () => {
    const call = benchOf(register).tool('by_hand')
    const first = await call.next()
    expect(first).toMatchObject({ kind: 'input_required', questions: { sure: {} } })
    expect(call.state).toMatch(/^r1\./)
    expect(call.state).not.toContain('plain words')
    expect(await call.next({ ...ok, unasked: { confirm: true } })).toMatchObject({
      text: 'plain words, sure',
    })
  })
})

describe('tools by hand beside ours', () => {
  const codec = createRequestStateCodec<{ ready: boolean }>({ key: new Uint8Array(32).fill(9) })

  function register(server: McpServer): void {
    server.registerTool('theirs', {}, async (ctx) => {
      const state = ctx.mcpReq.requestState<{ ready?: boolean }>()
      if (state !== undefined) return text(state.ready ? 'ready' : `unchecked: ${JSON.stringify(state)}`)
      return inputRequired({ requestState: await codec.mint({ ready: true }, ctx) })
    })
  }
  const bench = benchOf(
    (server, rondo) => {
      register(server)
      server.registerTool(
        'ours',
        {},
        rondo.tool(async (_args, ctx) => text(String(await ctx.confirm('sure', 'Sure?')))),
      )
    },
    (rondo) => ({ requestState: { verify: rondo.verify(codec.verify) } }),
  )

  it('keep the server’s own check of states, which ours do not use', async () => {
    expect(await bench.tool('theirs').run()).toMatchObject({ text: 'ready' })
    expect(await bench.tool('ours').run(ok)).toMatchObject({ text: 'true' })
  })

  it('B4 refuse states of our tools, and our tools refuse theirs', async () => {
    const [ours, theirs] = [bench.tool('ours'), bench.tool('theirs')]
    await Promise.all([ours.next(), theirs.next()])
    const states = [ours.state, theirs.state]
    ours.state = states[1]
    theirs.state = states[0]
    expect(await ours.next(ok)).toMatchObject({ kind: 'error', code: -32602 })
    expect(await theirs.next()).toMatchObject({ kind: 'error', code: -32602 })
  })
})
