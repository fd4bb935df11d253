import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import {
  asking,
  DISCOVERY,
  formQuestion,
  respond,
  said,
  scriptServer,
} from '../../../../test/support/scripted-server.ts'
import { connect } from './connect.ts'
import { abandon, answer, type PendingCall } from './pending.ts'
import { parsePending } from './stored-pending.ts'

const question = formQuestion('Which?', 'x')
const yes = { action: 'accept', content: { x: 'y' } } as const
const request = { method: 'tools/call', name: 'book', arguments: { id: 1 } } as const

describe('driving a call by hand', () => {
  it('C10 returns the result if nothing is asked', async () => {
    const client = await connect(scriptServer(said('done')))
    expect(await client.start(request)).toEqual({
      status: 'complete',
      result: { content: [{ type: 'text', text: 'done' }] },
      rounds: 0,
    })
  })

  it('C10 C11 returns a pending call as plain JSON, which another client resumes', async () => {
    const clock = createManualClock(5_000)
    const server = scriptServer(asking({ a: question, b: question }, 'state'), said('done'))
    const client = await connect(server, { clock, createId: () => 'call-1' })
    const step = await client.start(request)
    if (step.status !== 'input_required') throw new Error('The server should ask')
    expect(step.pending).toEqual({
      version: 1,
      id: 'call-1',
      server: { target: 'memory:', name: 'scripted', version: '1.0.0' },
      protocolVersion: '2026-07-28',
      request,
      round: 1,
      state: 'state',
      questions: { a: question, b: question },
      answers: {},
      startedAt: 5_000,
      askedAt: 5_000,
      workMs: 0,
      idleRounds: 0,
    })
    const stored = JSON.stringify(answer(step.pending, 'a', yes))
    const other = await connect(server)
    const last = await other.resume(parsePending(stored), { b: { action: 'decline' } })
    expect(last).toMatchObject({ status: 'complete', rounds: 1 })
    expect(server.seen[1]?.params).toMatchObject({
      name: 'book',
      arguments: { id: 1 },
      inputResponses: { a: yes, b: { action: 'decline' } },
      requestState: 'state',
    })
  })

  it('C1 does not resume while an answer is missing, and leaves the call unchanged', async () => {
    const server = scriptServer(asking({ a: question, b: question }, 's'), said('done'))
    const client = await connect(server)
    const step = await client.start(request)
    if (step.status !== 'input_required') throw new Error('The server should ask')
    await expect(client.resume(step.pending, { a: yes })).rejects.toMatchObject({ code: 'INPUT_MISSING' })
    expect(server.seen).toHaveLength(1)
    await client.resume(step.pending, { a: yes, b: yes })
  })

  it('C10 declares forms and URLs, or the kinds that the caller accepts', async () => {
    const server = scriptServer(said('x'))
    const client = await connect(server, { answers: { roots: [] }, tasks: false })
    const declared = () => server.seen.at(-1)?.meta['io.modelcontextprotocol/clientCapabilities']
    await client.start(request)
    expect(declared()).toEqual({ elicitation: { form: {}, url: {} }, roots: {} })
    await client.start(request, { accepts: ['sampling'] })
    expect(declared()).toEqual({ sampling: {} })
  })

  it('C10 calls no handler', async () => {
    const elicitation = () => Promise.reject(new Error('asked'))
    const client = await connect(scriptServer(asking({ a: question })), { answers: { elicitation } })
    expect(await client.start(request)).toMatchObject({ status: 'input_required' })
  })

  it('C10 continues through rounds without a question, or stops at each with everyRound', async () => {
    const script = [asking(undefined, 's1'), asking({ a: question }, 's2'), said('done')]
    const client = await connect(scriptServer(...script))
    expect(await client.start(request)).toMatchObject({ pending: { round: 2, state: 's2' } })
    const careful = await connect(scriptServer(...script))
    const first = await careful.start(request, { everyRound: true })
    expect(first).toMatchObject({ pending: { round: 1, state: 's1', questions: {} } })
    if (first.status !== 'input_required') throw new Error('The server should ask')
    expect(await careful.resume(first.pending, {}, { everyRound: true })).toMatchObject({
      pending: { round: 2 },
    })
  })

  it('C9 does not wait long for a call that was stored by a machine with another clock', async () => {
    const clock = createManualClock()
    const server = scriptServer(asking(undefined, 's1'), said('done'))
    const client = await connect(server, { clock })
    const first = await client.start(request, { everyRound: true })
    if (first.status !== 'input_required') throw new Error('The server should ask')
    const ahead = { ...first.pending, askedAt: clock.now() + 3_600_000 }
    const [done] = await Promise.all([client.resume(ahead), clock.elapse(50)])
    expect(done.status).toBe('complete')
    const old = { ...first.pending, askedAt: clock.now() - 3_600_000 }
    expect((await client.resume(old)).status).toBe('complete')
  })

  it('C8 counts the rounds of a resumed call from its beginning', async () => {
    const client = await connect(scriptServer(asking({ a: question }, 's')), { maxRounds: 2 })
    const first = await client.start(request)
    if (first.status !== 'input_required') throw new Error('The server should ask')
    const step = await client.resume(first.pending, { a: yes })
    if (step.status !== 'input_required') throw new Error('The server should ask again')
    expect(step.pending.round).toBe(2)
    await expect(client.resume(step.pending, { a: yes })).rejects.toMatchObject({
      code: 'LIMIT_CLIENT_ROUNDS',
    })
  })

  it.each([
    ['of another server', { server: { target: 'memory:', name: 'other' } }],
    ['of another revision', { protocolVersion: '2099-01-01' }],
    ['that was abandoned', { abandoned: true as const }],
  ])('C11 does not resume a call %s', async (_which, change) => {
    const server = scriptServer(asking({ a: question }, 's'))
    const client = await connect(server)
    const step = await client.start(request)
    if (step.status !== 'input_required') throw new Error('The server should ask')
    const changed: PendingCall = { ...step.pending, ...change }
    await expect(client.resume(changed, { a: yes })).rejects.toMatchObject({ code: 'INPUT_PENDING' })
    expect(server.seen).toHaveLength(1)
    expect(abandon(step.pending)).toMatchObject({ abandoned: true, questions: {} })
  })
})

describe('client.finish', () => {
  const started = async (...script: Parameters<typeof scriptServer>) => {
    const server = scriptServer(...script)
    const step = await (await connect(server)).start(request)
    if (step.status !== 'input_required') throw new Error('The server should ask')
    return { server, pending: step.pending }
  }

  it('C11 lets the handlers of another client answer the open questions', async () => {
    const script = [asking({ a: question, b: question }, 's'), asking({ c: question }, 't'), said('done')]
    const { server, pending } = await started(...script)
    const asked: string[] = []
    const elicitation = (_params: unknown, { key }: { key: string }) => {
      asked.push(key)
      return yes
    }
    const other = await connect(server, { answers: { elicitation } })
    const result = await other.finish(answer(pending, 'a', yes))
    expect(result).toMatchObject({ content: [{ text: 'done' }] })
    expect(asked).toEqual(['b', 'c'])
    expect(server.seen).toHaveLength(3)
  })

  it('C7 T22 refuses a question without a handler, and one that was made unsafe in storage', async () => {
    const { server, pending } = await started(asking({ a: question }, 's'))
    const nobody = await connect(server)
    await expect(nobody.finish(pending)).rejects.toMatchObject({ code: 'INPUT_NO_HANDLER' })
    const params = { mode: 'url', message: 'm', url: 'javascript:alert(1)' } as const
    const changed = { ...pending, questions: { a: { method: 'elicitation/create', params } as const } }
    const somebody = await connect(server, { answers: { elicitation: () => ({ action: 'accept' }) } })
    await expect(somebody.finish(changed)).rejects.toMatchObject({ code: 'PEER_LINK' })
    expect(server.seen).toHaveLength(1)
  })
})

describe('the other requests', () => {
  it('complete an argument', async () => {
    const server = scriptServer({ resultType: 'complete', completion: { values: ['x'], hasMore: false } })
    const client = await connect(server)
    const ref = { kind: 'prompt', name: 'p' } as const
    const completion = await client.complete({ ref, argument: { name: 'a', value: 'b' }, known: { c: 'd' } })
    expect(completion).toEqual({ values: ['x'], hasMore: false })
    expect(server.seen[0]?.params).toMatchObject({
      ref: { type: 'ref/prompt', name: 'p' },
      context: { arguments: { c: 'd' } },
    })
  })

  it('discover again', async () => {
    const server = { fetch: async (request: Request) => respond((await request.json()).id, DISCOVERY) }
    const client = await connect(server)
    expect((await client.discover()).supportedVersions).toEqual(['2026-07-28'])
  })

  it('cannot be sent after close', async () => {
    const client = await connect(scriptServer(() => new Promise(() => {})))
    const call = client.callTool('t')
    await client.close()
    await expect(call).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    await expect(client.listTools()).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
  })
})
