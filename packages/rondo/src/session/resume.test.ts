/** Streams that are resumed at another instance than the one that began them. */

import { describe, expect, it } from 'vitest'
import { settle } from '../../../../test/support/session-instances.ts'
import {
  ADA,
  allowing,
  call,
  type Exchange,
  type ServiceSetup,
  startService,
  VERSION,
} from '../../../../test/support/session-service.ts'
import type { PushOptions, StoredCall } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import { weighJson } from '../lib/json.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { OlderReply } from '../protocol/reply.ts'
import type { Claims } from '../seal/state.ts'
import { principalTag } from '../seal/state.ts'
import { FREE_WEIGHT } from '../serve/limits.ts'
import type { Loads } from '../serve/port.ts'
import type { SessionLine } from './line.ts'
import type { Older } from './older.ts'
import { isOver, isSilent } from './resume.ts'
import type { Session } from './session.ts'

const OWNER = principalTag(ADA)
const CLAIMS: Claims = {
  issuedAt: 1,
  roundExpires: 9e12,
  flowExpires: 9e12,
  flow: 'flow',
  round: 1,
  principal: OWNER,
  method: 'prompts/get',
  request: 'digest',
  protocolVersion: VERSION,
  asked: {},
  journal: { startedAt: 1, seed: 'seed', entries: [], moves: 0, reasks: {} },
}
const OK: OlderReply = { kind: 'complete', result: { content: [] } } as OlderReply
const answered = (id: unknown) => ({ jsonrpc: '2.0', id, result: {} })

interface Continued {
  readonly call: FlowCall
  readonly line: SessionLine
  readonly from: NonNullable<PushOptions['from']>
}

/** Two instances, and what the second one continues. Leases are short, and end in real time. */
function start({ older, host, ...setup }: ServiceSetup = {}, go?: (one: Continued) => unknown) {
  const continued: Continued[] = []
  const carryOn: Older['continue'] = async (call, _principal, line, from) => {
    const one = { call, line: line as SessionLine, from: from as Continued['from'] }
    continued.push(one)
    const reply = await go?.(one)
    if (reply !== undefined) return reply as never
    const asked = await from?.pending?.()
    return asked === undefined || asked.kind === 'answers'
      ? (OK as never)
      : { kind: 'error', error: asked.kind === 'refused' ? asked.error : new RondoError('PEER_REQUEST') }
  }
  const service = startService({
    hasStore: true,
    host: { leaseMs: 50, limits: { maxRounds: 10 } as never, ...host },
    older: { continue: carryOn, ...older },
    ...setup,
  })
  return { ...service, continued }
}
type Service = ReturnType<typeof start>

interface KeepTerms {
  readonly keys?: readonly string[]
  readonly kept?: Partial<StoredCall>
  readonly task?: string
  readonly args?: Record<string, unknown>
  readonly scopes?: readonly string[]
  /** The number of the event before the first question. */
  readonly seen?: number
}

/** Keeps a call, as an instance does that has died since. */
async function keep({ first, clock }: Service, terms: KeepTerms = {}) {
  const { keys = ['a'], kept, task, args = { a: 1 }, scopes = [], seen = 1 } = terms
  const headers = await first.begin()
  const session = (await first.shared.find(headers['mcp-session-id'], OWNER, 'ada')) as Session
  const { name } = session.streams.open(
    { primed: true, streams: true, responses: 1, batch: false, onLost() {} },
    { onGone: () => () => {} } as never,
    first.post.stream,
  )
  const request = { id: 1, target: 'book', progressToken: 'p', protocolVersion: VERSION }
  const hold = first.shared.hold?.(session, { name }, { ...request, args: () => args, scopes: () => scopes })
  const questions = hold?.name(keys.length).map((id, index) => {
    const json = JSON.stringify({ jsonrpc: '2.0', id, method: 'roots/list', params: {} })
    return { id, key: keys[index] ?? '', json, event: seen + 1 + index }
  })
  const stored = task === undefined ? { kept: { claims: CLAIMS, ...kept } } : { task }
  await hold?.park(stored, questions ?? [], clock.now + 60_000)
  const ids = questions?.map(({ id }) => id) ?? []
  return { headers, session, name, hold, ids }
}

/** True if no instance was asked for the stream, and no relay was read. */
const tookAtOnce = ({ second }: Service): boolean =>
  !second.told.some(({ kind }) => kind === 'wanted') && !second.reads.some((id) => id.includes('relay'))
const resume = ({ second }: Service, headers: Record<string, string>, name: string, after: number) =>
  second.request('GET', undefined, { ...headers, 'last-event-id': `${name}-${after}` })
const errorOf = ({ messages }: Exchange) => messages()[0]?.error as { code: number } | undefined
const eventsOf = ({ seen }: Exchange) => [...seen.text.matchAll(/^id: (.+)$/gm)].map(([, id]) => id)

describe('resume 1: a call that waits', () => {
  it('J1 continues at the instance where its client is, which sends the questions that were not seen', async () => {
    const service = start()
    const { headers, name, ids } = await keep(service, { keys: ['a', 'b'] })
    const stream = resume(service, headers, name, 2)
    await expect.poll(() => stream.messages()).toHaveLength(1)
    expect(stream.messages()[0]).toMatchObject({ id: ids[1] })
    expect(eventsOf(stream)).toEqual([`${name}-2`, `${name}-3`])
    const [one] = service.continued
    expect(one?.call).toMatchObject({
      kind: 'flow',
      id: 1,
      method: 'prompts/get',
      target: 'book',
      progressToken: 'p',
      protocolVersion: VERSION,
      capabilities: { elicitation: {} },
      logLevel: 'info',
    })
    expect(service.second.watched()).toEqual([{ call: one?.call, line: one?.line }])
    expect(one?.from).toMatchObject({ answers: undefined, methods: { a: 'roots/list', b: 'roots/list' } })
    for (const id of ids) await service.second.send('POST', answered(id), headers)
    await stream.done
    expect(stream.messages().at(-1)).toMatchObject({ id: 1, result: {} })
    expect(stream.seen.ends).toBe(1)
    await settle()
    let isIdle = false
    void service.second.inFlight.idle().then(() => {
      isIdle = true
    })
    await settle()
    expect(isIdle).toBe(true)
  })

  it('J1 continues at once if its client has seen all that came before the questions, and is not run twice', async () => {
    const service = start({ host: { leaseMs: 60_000 } })
    const { headers, name, session } = await keep(service, { keys: ['a', 'b'], seen: 4 })
    const line = service.first.shared.parts ? session : undefined
    expect(line).toBeDefined()
    const stream = resume(service, headers, name, 4)
    await expect.poll(() => stream.messages()).toHaveLength(2)
    expect(service.continued).toHaveLength(1)
    expect(tookAtOnce(service)).toBe(true)
  })

  it('J1 continues at once if nothing was sent, because it waits for a task', async () => {
    const service = start({ host: { leaseMs: 60_000 } })
    const { headers, name } = await keep(service, { keys: [], task: 'book' })
    await resume(service, headers, name, 1).done
    expect(service.served).toMatchObject([{ call: { kind: 'task', taskId: 'book' } }])
    expect(tookAtOnce(service)).toBe(true)
  })

  it('J1 is not taken for a client that has left', async () => {
    const service = start()
    const { headers, name } = await keep(service)
    resume(service, headers, name, 1).leave()
    await settle()
    await settle()
    expect([service.continued, service.second.told]).toEqual([[], []])
  })

  it('J1 is cancelled if its client leaves for good while it is taken', async () => {
    const service = start({ options: { resumeMs: 0 } })
    const { headers, name } = await keep(service)
    const { leave } = resume(service, headers, name, 1)
    service.second.link.beforePut = leave
    await expect.poll(() => service.continued.length).toBe(1)
    await settle()
    expect(service.continued[0]?.line.closed).toBe(true)
    expect([service.second.watched(), service.errors]).toEqual([[], []])
  })

  it('J1 waits for the instance that has what came before the questions, as long as that may be alive', async () => {
    const service = start({ host: { leaseMs: 400 } })
    const { headers, name } = await keep(service, { seen: 5 })
    const began = performance.now()
    resume(service, headers, name, 2)
    await expect.poll(() => service.continued.length).toBe(1)
    expect(performance.now() - began).toBeGreaterThanOrEqual(399)
  })

  it('resume 2: J1 that runs is left to its instance until its lease has run out', async () => {
    const service = start()
    const { headers, name } = await keep(service, { keys: [] })
    const stream = resume(service, headers, name, 1)
    await stream.done
    expect(stream.seen.failed?.status).toBe(400)
    service.clock.now += 50
    resume(service, headers, name, 1)
    await expect.poll(() => service.continued.length).toBe(1)
    expect(service.continued[0]?.from.pending).toBeUndefined()
  })

  it('J1 is taken from an instance that has released it', async () => {
    const service = start({ host: { leaseMs: 60_000 } })
    const { headers, name, hold } = await keep(service, { keys: [] })
    hold?.release()
    resume(service, headers, name, 1)
    await expect.poll(() => service.continued.length).toBe(1)
    expect(service.continued[0]?.call.args).toEqual({ a: 1 })
  })

  it('J1 is looked for again if another instance takes it at that moment', async () => {
    const service = start()
    const { headers, name } = await keep(service)
    const { second } = service
    const { parts } = second.shared
    const { take } = parts?.kept ?? {}
    let tries = 0
    Object.assign(parts?.kept ?? {}, {
      take: async (...args: Parameters<NonNullable<typeof take>>) => {
        tries += 1
        return tries === 1 ? undefined : take?.(...args)
      },
    })
    resume(service, headers, name, 1)
    await expect.poll(() => service.continued.length).toBe(1)
    expect(tries).toBe(2)
  })

  it('E6 needs the scopes that its caller needed', async () => {
    const { access, asked } = allowing(['read'])
    const service = start({ more: { access } })
    const { headers, name } = await keep(service, { scopes: ['read'] })
    asked.length = 0
    resume(service, headers, name, 1)
    await expect.poll(() => service.continued.length).toBe(1)
    expect(asked.slice(1)).toEqual([
      { calls: [], principal: ADA, also: ['read'] },
      { calls: ['flow'], principal: ADA, also: ['read'] },
    ])
    expect(service.continued[0]?.line.scopes).toEqual(['read'])
    const refused = start({ more: { access: { ...access, admit: allowing([]).access.admit } } })
    const other = await keep(refused, { scopes: ['read'] })
    const { seen, done } = resume(refused, other.headers, other.name, 1)
    await done
    expect([seen.failed?.status, refused.continued]).toEqual([200, []])
  })

  it('N2 has its arguments once it has its answers, and they weigh again', async () => {
    const opened: unknown[] = []
    const loads = {
      open(share: string) {
        opened.push(share)
        const hold = () => () => {}
        return { weight: 0, weigh: () => true, hold, reclaim: async () => hold() }
      },
    } as unknown as Loads
    const more = { service: { state: { draining: false }, loads } }
    const service = start({ more })
    const { headers, name, ids } = await keep(service, { args: { text: 'x'.repeat(100_000) } })
    const stream = resume(service, headers, name, 1)
    await expect.poll(() => service.continued.length).toBe(1)
    expect([opened, service.continued[0]?.call.args]).toEqual([['ada'], {}])
    await service.second.send('POST', answered(ids[0]), headers)
    await stream.done
    expect(service.continued[0]?.call.args).toMatchObject({ text: expect.any(String) })
    const light = start({ more })
    const kept = await keep(light)
    const end = resume(light, kept.headers, kept.name, 1)
    await expect.poll(() => light.continued.length).toBe(1)
    await light.second.send('POST', answered(kept.ids[0]), kept.headers)
    await end.done
    expect([light.continued[0]?.call.args, opened.length]).toEqual([{ a: 1 }, 1])
  })

  it('N2 weighs nothing if it is light, or if nothing is weighed', async () => {
    const heavy = 'x'.repeat((FREE_WEIGHT - weighJson('{"text":""}')) / 2 + 1)
    for (const [text, loads] of [
      [heavy.slice(1), { open: () => expect.unreachable('a light call is weighed') }],
      [heavy, undefined],
    ] as const) {
      const more = { service: { state: { draining: false }, loads: loads as unknown as Loads } }
      const service = start({ more })
      const { headers, name } = await keep(service, { args: { text } })
      resume(service, headers, name, 1)
      await expect.poll(() => service.continued.length).toBe(1)
    }
  })

  it.each([
    ['waits for room before it runs', [], 1],
    ['waits for its answers first', ['a'], 0],
  ])('N2 %s', async (_, keys, reclaimed) => {
    let count = 0
    const hold = () => () => {}
    const reclaim = async () => {
      count += 1
      return hold()
    }
    const loads = { open: () => ({ weight: 0, weigh: () => true, hold, reclaim }) } as unknown as Loads
    const more = { service: { state: { draining: false }, loads } }
    const counts: number[] = []
    const service = start({ more }, () => void counts.push(count))
    const { headers, name, hold: held } = await keep(service, { keys, args: { text: 'x'.repeat(100_000) } })
    held?.release()
    resume(service, headers, name, 1)
    await expect.poll(() => counts).toEqual([reclaimed])
  })

  it('J1 is kept again with its next questions', async () => {
    const service = start({}, ({ line }) =>
      line.ask({ c: { method: 'roots/list', params: {} } }, { timeoutMs: 1_000, kept: { claims: CLAIMS } }),
    )
    const { headers, name } = await keep(service, { keys: [], scopes: ['read'] })
    service.clock.now += 50
    const stream = resume(service, headers, name, 1)
    await expect.poll(() => stream.messages()).toHaveLength(1)
    const session = (await service.first.shared.find(headers['mcp-session-id'], OWNER, 'ada')) as Session
    const found = await service.first.shared.parts?.kept.find(session, name)
    expect(found?.value).toMatchObject({
      request: { id: 1, target: 'book', args: { a: 1 }, progressToken: 'p' },
      protocolVersion: VERSION,
      scopes: ['read'],
      questions: [{ key: 'c' }],
    })
  })

  it('J1 reports progress above what the other instance reported', async () => {
    const service = start({}, ({ line }) => {
      line.notify('notifications/progress', { progressToken: 'p', progress: 1 })
    })
    const { headers, name } = await keep(service, { kept: { progress: 5 } })
    const stream = resume(service, headers, name, 1)
    await expect.poll(() => stream.messages().length).toBeGreaterThan(0)
    const [progress] = stream.messages() as { params: { progress: number } }[]
    expect(progress?.params.progress).toBeGreaterThan(5)
    expect(service.continued[0]?.from.progress).toBe(5)
  })

  it('J1 ends when the time of its questions is up', async () => {
    const late = start()
    const kept = await keep(late)
    late.clock.now += 59_999
    const stream = resume(late, kept.headers, kept.name, 1)
    await expect.poll(() => late.continued.length).toBe(1)
    late.second.table.sweep()
    await settle()
    expect([stream.seen.ends, late.second.alarms]).toEqual([0, []])
    late.clock.now += 1
    late.second.table.sweep()
    await stream.done
    expect(stream.messages().at(-1)).toMatchObject({ id: 1, error: { code: -32603 } })
    const due = start()
    const { headers, name } = await keep(due, { kept: { due: due.clock.now + 20 } })
    const closed = resume(due, headers, name, 1)
    await expect.poll(() => due.second.alarms.length).toBe(1)
    due.clock.now += 20
    due.second.alarms[0]?.run()
    await closed.done
    expect(due.second.alarms).toEqual([])
    expect(closed.messages().at(-1)).toMatchObject({ id: 1, result: {} })
  })

  it('J1 is the call of the same session only: cancelled there, and abandoned when the client is gone for good', async () => {
    const service = start({ options: { resumeMs: 1_000 } })
    const { headers, name } = await keep(service)
    const { leave } = resume(service, headers, name, 1)
    await expect.poll(() => service.continued.length).toBe(1)
    await settle()
    leave()
    expect(service.continued[0]?.line.closed).toBe(false)
    service.clock.now += 1_000
    service.second.table.sweep()
    expect(service.continued[0]?.line.closed).toBe(true)
    const other = start()
    const kept = await keep(other)
    const { kept: calls } = other.second.shared.parts ?? {}
    const hold = calls?.hold
    const settled: string[] = []
    const keepResponse = async (json: string) => settled.push(json) > 0
    Object.assign(calls ?? {}, {
      hold: (...args: Parameters<NonNullable<typeof hold>>) => ({ ...hold?.(...args), settle: keepResponse }),
    })
    const stream = resume(other, kept.headers, kept.name, 1)
    await expect.poll(() => other.continued.length).toBe(1)
    const params = { requestId: 1 }
    await other.second.send(
      'POST',
      { jsonrpc: '2.0', method: 'notifications/cancelled', params },
      kept.headers,
    )
    await stream.done
    await settle()
    expect(stream.messages().some(({ result }) => result !== undefined)).toBe(false)
    expect(settled).toEqual([])
  })

  it('R11 gets an error if it cannot be continued', async () => {
    const faults: [() => unknown, number][] = [
      [() => Promise.reject(new RondoError('PEER_REQUEST')), -32600],
      [() => Promise.reject(new Error('broken')), -32603],
    ]
    for (const [fault, code] of faults) {
      const service = start({}, fault)
      const { headers, name } = await keep(service)
      const stream = resume(service, headers, name, 1)
      await stream.done
      expect(stream.messages().at(-1)).toMatchObject({ id: 1, error: { code } })
      expect(service.errors).toHaveLength(code === -32603 ? 1 : 0)
    }
    const service = start()
    const { headers, name } = await keep(service, { kept: { claims: { ...CLAIMS, flow: 7 as never } } })
    const stream = resume(service, headers, name, 1)
    await stream.done
    expect(stream.messages().at(-1)).toMatchObject({ id: 1, error: { code: -32602 } })
  })

  it('R7 gets its response from the instance that has it by now', async () => {
    const service = start()
    const { headers, name, ids } = await keep(service)
    const { kept } = service.second.shared.parts ?? {}
    const hold = kept?.hold
    Object.assign(kept ?? {}, {
      hold: (...args: Parameters<NonNullable<typeof hold>>) => ({
        ...hold?.(...args),
        settle: async () => false,
      }),
    })
    const stream = resume(service, headers, name, 1)
    await expect.poll(() => service.continued.length).toBe(1)
    await service.second.send('POST', answered(ids[0]), headers)
    await stream.done
    expect(stream.messages().filter(({ result }) => result !== undefined)).toEqual([])
  })

  it('J1 F1 is a wait for a task, whose questions are not asked again', async () => {
    const service = start({
      async answer({ line, call }) {
        const asked = await line.ask(
          { a: { method: 'roots/list', params: {} } },
          { timeoutMs: 1_000, task: 'book' },
        )
        return asked.kind === 'answers' && call.kind === 'task' ? OK : (undefined as never)
      },
    })
    const { headers, name, ids } = await keep(service, { task: 'book' })
    const stream = resume(service, headers, name, 2)
    await expect.poll(() => service.served.length).toBe(1)
    expect(service.served[0]).toMatchObject({
      principal: ADA,
      call: { kind: 'task', action: 'result', id: 1, taskId: 'book', progressToken: 'p' },
    })
    expect(stream.messages()).toEqual([])
    await service.second.send('POST', answered(ids[0]), headers)
    await stream.done
    expect(stream.messages()).toMatchObject([{ id: 1, result: {} }])
  })
})

describe('resume 2: a stream of another instance', () => {
  it('J1 is relayed while its call runs', async () => {
    let finish = () => {}
    const service = start({
      async answer({ line }) {
        line.notify('notifications/message', { data: 1 })
        await new Promise<void>((resolve) => {
          finish = resolve
        })
        return OK
      },
    })
    const headers = await service.first.begin()
    const lost = service.first.request('POST', call(7), headers)
    await settle()
    lost.leave()
    const [id = ''] = eventsOf(lost).slice(-1)
    const stream = service.second.request('GET', undefined, { ...headers, 'last-event-id': id })
    await expect.poll(() => stream.seen.headers).toBeDefined()
    finish()
    await stream.done
    expect(stream.messages()).toMatchObject([{ id: 7, result: {} }])
    expect([service.continued, service.errors]).toEqual([[], []])
  })

  it('J1 E6 is relayed only to a token that allows it', async () => {
    const { access, asked } = allowing(['read'], ['read'])
    const service = start({
      more: { access },
      async answer({ line }) {
        line.notify('notifications/message', { data: 1 })
        return new Promise(() => {})
      },
    })
    const headers = await service.first.begin()
    const lost = service.first.request('POST', call(7), headers)
    await settle()
    lost.leave()
    asked.length = 0
    const [id = ''] = eventsOf(lost).slice(-1)
    const stream = service.second.request('GET', undefined, { ...headers, 'last-event-id': id })
    await expect.poll(() => stream.seen.headers).toBeDefined()
    expect(asked.at(-1)).toEqual({ calls: [], principal: ADA, also: ['read'] })
    expect(stream.seen.text.startsWith(': still here')).toBe(true)
    stream.leave()
  })

  it('J1 has the response of a call that has ended', async () => {
    const service = start()
    const { headers, name, hold } = await keep(service)
    await hold?.settle('{"jsonrpc":"2.0","id":1,"result":{}}')
    const stream = resume(service, headers, name, 4)
    await stream.done
    expect(stream.messages()).toEqual([{ jsonrpc: '2.0', id: 1, result: {} }])
    await settle()
    expect([eventsOf(stream), stream.seen.ends, stream.seen.failed]).toEqual([[`${name}-5`], 1, undefined])
  })

  it('J1 is none if nobody has it', async () => {
    const service = start()
    const headers = await service.first.begin()
    const session = (await service.first.shared.find(headers['mcp-session-id'], OWNER, 'ada')) as Session
    const { name } = session.streams.open(
      { primed: true, streams: true, responses: 1, batch: false, onLost() {} },
      { onGone: () => () => {} } as never,
      service.first.post.stream,
    )
    const stream = resume(service, headers, name, 1)
    await stream.done
    expect(stream.seen.failed?.status).toBe(400)
    expect(service.second.told.filter(({ kind }) => kind === 'wanted')).toHaveLength(1)
    const gone = resume(service, headers, name, 1)
    gone.leave()
    await settle()
    expect([gone.seen.failed, gone.seen.text]).toEqual([undefined, ''])
  })

  it('J1 is none after an event that no stream has', async () => {
    const service = start()
    const headers = await service.first.begin()
    const stream = service.second.request('GET', undefined, { ...headers, 'last-event-id': 'x' })
    await stream.done
    expect([stream.seen.failed?.status, service.errors, service.second.told]).toEqual([400, [], []])
  })

  it('T18 is looked for with so many others of its caller', async () => {
    const service = start()
    const { headers, name } = await keep(service, { keys: [] })
    const many = Array.from({ length: 65 }, () => resume(service, headers, name, 1))
    await Promise.all(many.map(({ done }) => done))
    const codes = many.map((one) => one.seen.failed?.status)
    expect(codes.filter((status) => status === 400)).toHaveLength(64)
    expect(codes.filter((status) => status !== 400)).toHaveLength(1)
    const again = resume(service, headers, name, 1)
    await again.done
    expect(errorOf(again)).toBeDefined()
    expect(again.seen.failed?.status).toBe(400)
  })
})

describe('a search', () => {
  it.each([
    [5, 1_000, 15_000, true],
    [4, 1_000, 15_000, false],
    [5, 999, 15_000, false],
    [5, 400, 400, true],
    [5, 399, 400, false],
  ])('after %i looks and %i ms takes a call from a silent holder with a lease of %i ms: %s', (...row) => {
    const [looks, waitedMs, leaseMs, isTaken] = row
    expect(isSilent(looks, waitedMs, leaseMs)).toBe(isTaken)
  })

  it.each([
    [3_000, 15_000, false, false],
    [3_001, 15_000, false, true],
    [18_000, 15_000, true, false],
    [18_001, 15_000, true, true],
    [50, 50, false, false],
    [51, 50, false, true],
  ])('of %i ms with a lease of %i ms, where the call is kept: %s, ends: %s', (...row) => {
    const [waitedMs, leaseMs, isKept, ends] = row
    expect(isOver(waitedMs, leaseMs, isKept ? ({} as never) : undefined)).toBe(ends)
  })
})

describe('resume 3: the stream of a session', () => {
  it('J1 begins anew in the form of its version', async () => {
    const service = start()
    for (const [version, isPrimed] of [
      [VERSION, true],
      ['2025-06-18', false],
    ] as const) {
      const headers = await service.first.begin(version)
      const own = service.first.request('GET', undefined, headers)
      await settle()
      const session = (await service.first.shared.find(headers['mcp-session-id'], OWNER, 'ada')) as Session
      session.notify({ kind: 'tools' })
      const [id = ''] = eventsOf(own).slice(-1)
      const stream = service.second.request('GET', undefined, { ...headers, 'last-event-id': id })
      await expect.poll(() => stream.messages()).toHaveLength(3)
      expect(stream.seen.text.includes('retry:')).toBe(isPrimed)
      expect(stream.seen.ends).toBe(0)
    }
  })
})
