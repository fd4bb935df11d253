import { describe, expect, it } from 'vitest'
import type { Observed, ObservedOperation, OperationEnd } from '../protocol/observer.ts'
import type { ElicitResult, InputRequests } from '../protocol/wire.ts'
import { answer, ask, begin } from './pending.ts'
import type { AskInfo } from './question.ts'
import { fulfil } from './round.ts'

const form = (message: string) =>
  ({ method: 'elicitation/create', params: { mode: 'form', message, requestedSchema: {} } }) as const
const questions: InputRequests = { a: form('A'), b: form('B'), c: form('C') }
const beginning = { id: 'x', server: { target: 't', name: 's' }, protocolVersion: 'v', now: 0 }
const begun = begin({ method: 'tools/call', name: 'tool' }, beginning)
const pending = ask(begun, { questions, now: 0, tookMs: 0 }, { maxRounds: 10 })
const yes: ElicitResult = { action: 'accept', content: {} }

describe('answering a round', () => {
  it('C1 asks one question at a time, in order, with its position and the count', async () => {
    const log: string[] = []
    let busy = 0
    const elicitation = async (
      params: { message: string },
      { index, count, round, server, key }: AskInfo,
    ) => {
      busy += 1
      log.push(`${server.name} ${round} ${key} ${params.message} ${index}/${count} busy ${busy}`)
      await Promise.resolve()
      busy -= 1
      return yes
    }
    const done = await fulfil(pending, { answers: { elicitation } })
    expect(done.answers).toEqual({ a: yes, b: yes, c: yes })
    expect(log).toEqual(['s 1 a A 1/3 busy 1', 's 1 b B 2/3 busy 1', 's 1 c C 3/3 busy 1'])
  })

  it('calls all handlers at once with `together`', async () => {
    const waiting: (() => void)[] = []
    const elicitation = () => new Promise<ElicitResult>((resolve) => waiting.push(() => resolve(yes)))
    const work = fulfil(pending, { answers: { elicitation, together: true } })
    expect(waiting).toHaveLength(3)
    for (const go of waiting) go()
    expect(Object.keys((await work).answers)).toHaveLength(3)
  })

  it('C11 keeps existing answers and reports the call after each new one', async () => {
    const asked: string[] = []
    const kept: string[][] = []
    const elicitation = (_params: unknown, { key }: AskInfo) => {
      asked.push(key)
      return yes
    }
    await fulfil(answer(pending, 'b', yes), {
      answers: { elicitation },
      onAnswer: (now) => void kept.push(Object.keys(now.answers)),
    })
    expect(asked).toEqual(['a', 'c'])
    expect(kept).toEqual([
      ['b', 'a'],
      ['b', 'a', 'c'],
    ])
  })

  it('ends the call when a handler throws, and aborts its siblings', async () => {
    const signals: AbortSignal[] = []
    const elicitation = async (params: { message: string }, { signal }: AskInfo) => {
      signals.push(signal)
      if (params.message === 'B') throw new Error('no more')
      return new Promise<ElicitResult>(() => {})
    }
    const work = fulfil(pending, { answers: { elicitation, together: true } })
    await expect(work).rejects.toMatchObject({ code: 'INPUT_ABORTED', cause: new Error('no more') })
    expect(signals.map((signal) => signal.aborted)).toEqual([true, true, true])
  })

  it('C12 ends at once when the call is cancelled, even if a handler ignores its signal', async () => {
    const controller = new AbortController()
    let inner: AbortSignal | undefined
    const elicitation = (_params: unknown, { signal }: AskInfo) => {
      inner = signal
      controller.abort(new Error('stop'))
      return new Promise<ElicitResult>(() => {})
    }
    const work = fulfil(pending, { answers: { elicitation }, signal: controller.signal })
    await expect(work).rejects.toThrow('stop')
    expect(inner?.aborted).toBe(true)
  })

  it('asks nobody if the call is already cancelled', async () => {
    let asked = 0
    const elicitation = () => {
      asked += 1
      return yes
    }
    const signal = AbortSignal.abort(new Error('stop'))
    await expect(fulfil(pending, { answers: { elicitation }, signal })).rejects.toThrow('stop')
    expect(asked).toBe(0)
  })

  it('does not accept an answer of the wrong shape', async () => {
    const elicitation = () => ({ action: 'accept' }) as ElicitResult
    await expect(fulfil(pending, { answers: { elicitation } })).rejects.toMatchObject({
      code: 'INPUT_ANSWER',
    })
    const nothing = () => undefined as unknown as ElicitResult
    await expect(fulfil(pending, { answers: { elicitation: nothing } })).rejects.toMatchObject({
      code: 'INPUT_ANSWER',
    })
  })

  it('T16 tells telemetry of a question neither its words nor its answer, only what is trace context', async () => {
    const traceparent = `00-${'1'.repeat(32)}-${'a'.repeat(16)}-01`
    const _meta = { traceparent, tracestate: 5, secret: 'canary', baggage: 'user=1' }
    const plain = form('canary')
    const asked = { q: { ...plain, params: { ...plain.params, _meta } } } as InputRequests
    const told: (ObservedOperation | OperationEnd)[] = []
    const observed: Observed = {
      run: (fn) => fn(),
      work: (_kind, _key, fn) => fn(),
      replayed: () => {},
      end: (end) => void told.push(end),
    }
    const begins = (operation: ObservedOperation): Observed => {
      told.push(operation)
      return observed
    }
    const peer = { observer: { begin: begins }, clock: { now: () => 7, after: () => () => {} } }
    const one = ask(begun, { questions: asked, now: 0, tookMs: 0 }, { maxRounds: 10 })
    await fulfil(one, { answers: { elicitation: () => yes }, peer })
    const declined = () => Promise.reject(new Error('canary'))
    await expect(fulfil(one, { answers: { elicitation: declined }, peer })).rejects.toThrow('INPUT_ABORTED')
    const question = { kind: 'question', method: 'elicitation/create', protocolVersion: 'v', began: 7 }
    const operation = { ...question, trace: { traceparent, baggage: 'user=1' }, spans: undefined }
    expect(told).toEqual([operation, { outcome: 'complete' }, operation, { code: 'INPUT_ABORTED' }])
  })
})
