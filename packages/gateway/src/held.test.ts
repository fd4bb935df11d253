import type { AskInfo, InputRequest, InputResponse } from 'rondo/client'
import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../test/support/manual-clock.ts'
import { createHeldCalls, type HeldCalls } from './held.ts'
import { HOLD } from './options.ts'
import type { TakeQuestion } from './upstream.ts'

const LINE = { progress() {}, log() {} }
const FORM: InputRequest = {
  method: 'elicitation/create',
  params: { mode: 'form', message: 'Name?', requestedSchema: { type: 'object' } },
}
const YES: InputResponse = { action: 'accept', content: { name: 'Ada' } }

function info(signal: AbortSignal = new AbortController().signal): AskInfo {
  const request = { method: 'tools/call', name: 't' } as const
  return { key: 'k', server: { target: 'x' }, request, round: 1, index: 1, count: 1, signal }
}

/** A call that asks `questions` times, one after the other, and counts how often it was sent. */
function asking(questions = 1) {
  const seen = { sent: 0, aborted: false, answers: [] as InputResponse[] }
  const send = async (take: TakeQuestion, _line: unknown, signal: AbortSignal) => {
    seen.sent += 1
    signal.addEventListener('abort', () => {
      seen.aborted = true
    })
    for (let n = 0; n < questions; n += 1) seen.answers.push(await take(FORM, info(signal)))
    return { content: [`after ${questions}`] }
  }
  return { seen, send }
}

const setup = (limits: Partial<typeof HOLD> = {}) => {
  const clock = createManualClock()
  const held = createHeldCalls({ ...HOLD, ...limits }, clock)
  const begin = async (
    send: ReturnType<typeof asking>['send'],
    caller = 'ada',
    signal = new AbortController().signal,
  ) => {
    const step = held.begin({ upstream: 'crm', caller, send }, { line: LINE, signal })
    step.catch(() => {})
    await clock.elapse(10)
    return step
  }
  const resume = async (id: string, answers: Record<string, InputResponse>, caller = 'ada') => {
    const step = held.resume(id, caller, answers, { line: LINE, signal: new AbortController().signal })
    step.catch(() => {})
    return step
  }
  return { clock, held, begin, resume }
}

async function asked(held: HeldCalls, step: Awaited<ReturnType<HeldCalls['begin']>>): Promise<string> {
  if (step.kind !== 'asks') throw new Error(`expected a question, got ${step.kind}; ${held.size} held`)
  return step.id
}

describe('held calls', () => {
  it('K3 end with the result of the upstream, and are sent once', async () => {
    const { held, begin, resume } = setup()
    const { seen, send } = asking()
    const id = await asked(held, await begin(send))
    expect(held.size).toBe(1)
    expect(await resume(id, { 'ask-1': YES })).toEqual({ kind: 'result', result: { content: ['after 1'] } })
    expect(held.size).toBe(0)
    expect(seen).toEqual({ sent: 1, aborted: false, answers: [YES] })
  })

  it.each<[string, unknown]>([
    ['nothing', null],
    ['a text', 'accept'],
    ['an action that does not exist', { action: 'agree', content: { name: 'Eve' } }],
    ['a Yes without the form', { action: 'accept' }],
    ['a Yes whose form is a text', { action: 'accept', content: 'Eve' }],
    ['the answer to another kind of question', { roots: [] }],
  ])('ask again after an answer that is %s, and pass nothing of it on', async (_what, junk) => {
    const { clock, held, begin, resume } = setup()
    const { seen, send } = asking()
    const id = await asked(held, await begin(send))
    const again = resume(id, { 'ask-1': junk as InputResponse, 'ask-2': YES, __proto__: YES })
    await clock.elapse(10)
    expect(await again).toMatchObject({ kind: 'asks', id, questions: { 'ask-1': FORM } })
    expect(seen.answers).toEqual([])
    expect(await resume(id, { 'ask-1': YES })).toMatchObject({ kind: 'result' })
    expect(seen.answers).toEqual([YES])
  })

  it('give the same reply to a retry that comes again', async () => {
    const { held, begin, resume } = setup()
    const { seen, send } = asking()
    const id = await asked(held, await begin(send))
    const first = await resume(id, { 'ask-1': YES })
    expect(await resume(id, { 'ask-1': { action: 'decline' } })).toEqual(first)
    expect(seen).toMatchObject({ sent: 1, answers: [YES] })
  })

  it('ask again for what was not answered', async () => {
    const { held, begin, resume, clock } = setup()
    const { send } = asking()
    const id = await asked(held, await begin(send))
    const again = resume(id, {})
    await clock.elapse(10)
    expect(await again).toMatchObject({ kind: 'asks', id })
  })

  it('W2 K5 are not found by another caller', async () => {
    const { held, begin, resume } = setup()
    const { seen, send } = asking()
    const id = await asked(held, await begin(send))
    expect(await resume(id, { 'ask-1': YES }, 'eve')).toEqual({ kind: 'lost' })
    expect(seen.answers).toEqual([])
    await resume(id, { 'ask-1': YES })
    expect(await resume(id, {}, 'eve')).toEqual({ kind: 'lost' })
  })

  it('K3 end when nobody answers in time, which cancels the call and says so, once and for all', async () => {
    const { held, begin, resume, clock } = setup({ waitMs: 5_000 })
    const { seen, send } = asking()
    const id = await asked(held, await begin(send))
    clock.advance(5_000)
    expect(held.size).toBe(0)
    expect(seen.aborted).toBe(true)
    await expect(resume(id, { 'ask-1': YES })).rejects.toThrow('Nobody answered "crm" within 5 s')
    expect(seen).toMatchObject({ sent: 1, answers: [] })
  })

  it('R9 are bounded per caller and in all, and one too many is ended with the reason', async () => {
    const { held, begin } = setup({ maxCallsPerCaller: 1, maxCalls: 2 })
    await begin(asking().send)
    const own = asking()
    await expect(
      held.begin(
        { upstream: 'crm', caller: 'ada', send: own.send },
        { line: LINE, signal: new AbortController().signal },
      ),
    ).rejects.toThrow('hold.maxCallsPerCaller')
    expect(own.seen.aborted).toBe(true)
    await begin(asking().send, 'bob')
    await expect(
      held.begin(
        { upstream: 'crm', caller: 'cy', send: asking().send },
        { line: LINE, signal: new AbortController().signal },
      ),
    ).rejects.toThrow('hold.maxCalls')
    expect(held.size).toBe(2)
  })

  it('R9 are bounded in characters', async () => {
    const { held } = setup({ maxBytes: 10 })
    const one = held.begin(
      { upstream: 'crm', caller: 'ada', send: asking().send },
      { line: LINE, signal: new AbortController().signal },
    )
    await expect(one).rejects.toThrow('hold.maxBytes')
  })

  it('W7 are cancelled with the round that waits for them', async () => {
    const { held } = setup()
    const client = new AbortController()
    const seen = { aborted: false }
    const send = (_take: TakeQuestion, _line: unknown, signal: AbortSignal) =>
      new Promise<never>((_, reject) => {
        signal.addEventListener('abort', () => {
          seen.aborted = true
          reject(signal.reason)
        })
      })
    const step = held.begin({ upstream: 'crm', caller: 'ada', send }, { line: LINE, signal: client.signal })
    client.abort()
    await expect(step).rejects.toThrow('cancelled')
    expect(seen.aborted).toBe(true)
    expect(held.size).toBe(0)
  })

  it('say that the gateway stops', async () => {
    const { held, begin, resume } = setup()
    const id = await asked(held, await begin(asking().send))
    held.close()
    await expect(resume(id, {})).rejects.toThrow('It may have had effects there')
  })

  it('K3 wait for the last answer however often a retry came: no earlier time limit ends them', async () => {
    const { clock, held, begin } = setup({ waitMs: 1_000 })
    const { send } = asking(2)
    const id = await asked(held, await begin(send))
    const again = () =>
      held.resume(id, 'ada', undefined, { line: LINE, signal: new AbortController().signal })
    const both = [again(), again()]
    clock.advance(10)
    await Promise.all(both)
    clock.advance(600)
    const answered = held.resume(
      id,
      'ada',
      { 'ask-1': YES },
      { line: LINE, signal: new AbortController().signal },
    )
    await clock.elapse(10)
    expect(await answered).toMatchObject({ kind: 'asks' })
    clock.advance(600)
    expect(held.size).toBe(1)
  })
})
