/** The line of a call, between a session, a channel and a store that are driven by hand. */

import { describe, expect, it } from 'vitest'
import type { StoredCall } from '../carry/push.ts'
import { RondoError } from '../errors.ts'
import type { PeerAnswer } from '../protocol/call.ts'
import { createCodecs } from '../protocol/revisions.ts'
import type { InputRequests } from '../protocol/wire.ts'
import { type CallKeeper, type Channel, type LineHost, SessionLine } from './line.ts'
import type { SentQuestion } from './question.ts'

interface Setup {
  /** With a store. */
  readonly isDurable?: boolean
  readonly isPortable?: boolean
  readonly isFull?: boolean
  /** The call of another instance, which has kept it. */
  readonly isTakenOver?: boolean
  /** What the channel has besides `send`. */
  readonly channel?: Partial<Channel>
  readonly size?: () => number
}

interface Keeping {
  readonly call: { readonly kept?: StoredCall; readonly task?: string }
  readonly questions: readonly SentQuestion[]
  readonly until: number
  resolve(): void
  reject(error: unknown): void
}

interface Message {
  readonly id?: unknown
  readonly method?: string
  readonly params?: Readonly<Record<string, unknown>>
}

const dialect = createCodecs().session('2025-11-25')
const ROOTS = { method: 'roots/list', params: {} } as const
const ONE: InputRequests = { a: ROOTS }
const TWO: InputRequests = { a: ROOTS, b: ROOTS }
const TERMS = { timeoutMs: 1_000 }
const KEPT = { claims: { flowExpires: 9_000 } } as StoredCall
const result = (content: unknown): PeerAnswer => ({ kind: 'result', result: content }) as PeerAnswer
const DRAINING = new RondoError('SERVER_DRAINING')
const REFUSED = { kind: 'refused', error: DRAINING }
const LEVEL = 'notifications/message'
const PROGRESS = 'notifications/progress'

/** Lets everything settle that can. */
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

function start(setup: Setup = {}) {
  const { isDurable = false, isPortable = false, isFull = false, isTakenOver = false, channel, size } = setup
  const log: string[] = []
  const sent: { message: Message; droppable: boolean; eventId?: string }[] = []
  const takers = new Map<string, (answer: PeerAnswer) => void>()
  const scopes: unknown[] = []
  const keeping: Keeping[] = []
  const clock = { now: 5_000 }
  const taken = { here: true, elsewhere: false }
  let isKept = isTakenOver
  const host: LineHost = {
    now: () => clock.now,
    randomId: () => 'random',
    portable: isPortable,
    expect(take, named, given) {
      const id = named?.id ?? `ask.${takers.size + 1}`
      takers.set(id, take)
      scopes.push(given)
      return id
    },
    forget: (id) => void takers.delete(id),
    park(bytes) {
      if (!isFull) log.push(`park ${bytes}`)
      return !isFull
    },
    unpark: (bytes) => void log.push(`unpark ${bytes}`),
  }
  let names = 0
  const keeper: CallKeeper = {
    name: (count) => Array.from({ length: count }, () => `kept.${++names}`),
    park: (call, questions, until) =>
      new Promise<void>((resolve, reject) => keeping.push({ call, questions, until, resolve, reject })).then(
        () => {
          isKept = true
        },
      ),
    async drop() {
      log.push('drop')
      return taken.here
    },
    isKept: () => isKept,
    isTaken: async () => taken.elsewhere,
    catchUp: () => void log.push('catch up'),
    release: () => void log.push('release'),
  }
  const line = new SessionLine(
    host,
    {
      send: (json, droppable, eventId) => void sent.push({ message: JSON.parse(json), droppable, eventId }),
      beat: () => void log.push('beat'),
      open: true,
      ...(isDurable && { last: 7 }),
      ...channel,
    },
    dialect,
    size,
    isDurable ? keeper : undefined,
  )
  const answer = (id: string, content: unknown = {}): void => takers.get(id)?.(result(content))
  const methods = () => sent.map(({ message }) => message.method)
  return { line, log, sent, takers, scopes, keeping, clock, taken, answer, methods }
}

describe('a line', () => {
  it('sends notifications, which a client that does not read may miss, until its call has ended', () => {
    const { line, sent } = start()
    line.notify(LEVEL, { data: 1 })
    const message = { jsonrpc: '2.0', method: LEVEL, params: { data: 1 } }
    expect(sent).toEqual([{ message, droppable: true }])
    line.cancel()
    line.notify(LEVEL, { data: 2 })
    expect([sent.length, line.closed, line.left]).toEqual([1, true, false])
  })

  it('J1 belongs to a session that every instance knows, or to one of this instance', () => {
    expect([start({ isPortable: true }).line.portable, start().line.portable]).toEqual([true, false])
  })

  it('reports progress that only grows, from what another instance reported', () => {
    const { line, sent } = start()
    line.continueFrom(5)
    line.notify(PROGRESS, { progressToken: 1, progress: 3 })
    expect(sent[0]?.message.params?.progress).toBeGreaterThan(5)
  })

  it('sends a heartbeat if it has been silent: progress to a client that asked for it, or else a comment', () => {
    const { line, sent, log } = start()
    line.notify(LEVEL, {})
    expect(line.beat('token')).toBe(true)
    expect([sent.length, log]).toEqual([1, []])
    expect(line.beat(undefined)).toBe(true)
    expect([sent.length, log]).toEqual([1, ['beat']])
    line.beat('token')
    const params = { progressToken: 'token', progress: 0 }
    expect(sent[1]).toEqual({ message: { jsonrpc: '2.0', method: PROGRESS, params }, droppable: true })
    line.cancel()
    expect([line.beat('token'), sent.length]).toEqual([false, 2])
    expect(start({ channel: { beat: undefined } }).line.beat(undefined)).toBe(true)
  })

  it('tells who listens that its call has ended, once for each', () => {
    const { line } = start()
    const heard: string[] = []
    const twice = () => void heard.push('twice')
    const stop = line.onClose(twice)
    line.onClose(twice)
    stop()
    line.onClose(() => heard.push('other'))
    line.cancel()
    line.cancel()
    line.leave()
    expect(heard).toEqual(['twice', 'other'])
    line.onClose(() => heard.push('late'))
    expect([heard.length, line.left]).toEqual([3, false])
  })
})

describe('the questions of a line', () => {
  it('line 1: are all sent before an answer is awaited, while the call counts as parked', async () => {
    const { line, sent, log, answer, scopes } = start({ size: () => 123 })
    line.scopes = ['read']
    line.ready = async () => void log.push('ready')
    const asked = line.ask(TWO, { ...TERMS, task: 'task 1', trace: { traceparent: '00-1' } })
    expect(sent.map(({ message }) => [message.id, message.method])).toEqual([
      ['ask.1', 'roots/list'],
      ['ask.2', 'roots/list'],
    ])
    expect(sent[0]).toMatchObject({ droppable: false, eventId: undefined })
    expect(JSON.stringify(sent[0]?.message)).toMatch(/task 1.*00-1|00-1.*task 1/)
    expect([line.waiting, line.asked('ask.1'), scopes, log]).toEqual([
      true,
      false,
      [['read'], ['read']],
      ['park 123'],
    ])
    answer('ask.1', 1)
    answer('ask.2', 2)
    expect(await asked).toEqual({ kind: 'answers', answers: { a: 1, b: 2 } })
    expect([line.waiting, log]).toEqual([false, ['park 123', 'unpark 123', 'ready']])
    void line.ask(ONE, TERMS)
    expect(scopes[2]).toEqual(['read'])
  })

  it('need no scopes unless the call does', () => {
    const { line, scopes } = start()
    void line.ask(ONE, TERMS)
    expect(scopes).toEqual([[]])
  })

  it('end with the call, even if those before them have just been answered', async () => {
    const { line, answer } = start()
    const first = line.ask(ONE, TERMS)
    answer('ask.1')
    const second = line.ask(ONE, TERMS)
    await first
    line.cancel()
    expect(await second).toEqual({ kind: 'gone' })
  })

  it('have been answered, although the call ends at that moment', async () => {
    const { line, answer, taken } = start({ isDurable: true })
    taken.here = false
    const asked = line.ask(ONE, TERMS)
    answer('ask.1', 1)
    line.cancel()
    expect(await asked).toEqual({ kind: 'answers', answers: { a: 1 } })
  })

  it('are not sent if nobody can be asked', async () => {
    const [cancelled, left, full] = [start(), start(), start({ isFull: true })]
    cancelled.line.cancel()
    expect(await cancelled.line.ask(ONE, TERMS)).toEqual({ kind: 'gone' })
    left.line.leave()
    expect(await left.line.ask(ONE, TERMS)).toEqual({ kind: 'left' })
    const silent = start({ channel: { open: false } })
    expect(await silent.line.ask(ONE, TERMS)).toEqual({ kind: 'gone' })
    const refused = { kind: 'refused', error: { code: 'LIMIT_PARKED' } }
    expect(await full.line.ask(ONE, TERMS)).toMatchObject(refused)
    expect(await full.line.askAgain([], {}, 0, TERMS)).toMatchObject(refused)
    expect([...cancelled.sent, ...left.sent, ...silent.sent, ...full.sent]).toEqual([])
  })

  it('R9 end with an error when their time is up', async () => {
    const { line, log } = start()
    line.ready = async () => void log.push('ready')
    line.sweep(9_999)
    const asked = line.ask(ONE, TERMS)
    line.sweep(5_999)
    expect(line.waiting).toBe(true)
    line.sweep(6_000)
    expect(await asked).toMatchObject({ kind: 'refused', error: { code: 'INPUT_TIMEOUT' } })
    expect(log).toEqual(['park 0', 'unpark 0'])
  })

  it('end when a signal says so', async () => {
    const [enough, signal] = [new AbortController(), new AbortController()]
    const timed = start().line.ask(ONE, { ...TERMS, enough: enough.signal })
    const asked = start().line.ask(ONE, { ...TERMS, signal: signal.signal })
    enough.abort()
    signal.abort()
    expect(await timed).toEqual({ kind: 'answers', answers: {} })
    expect(await asked).toMatchObject({ kind: 'refused' })
  })

  it('let the handler go on with room for its arguments if the client does not know their method', async () => {
    const { line, log, takers } = start()
    line.ready = async () => void log.push('ready')
    const asked = line.ask(ONE, TERMS)
    takers.get('ask.1')?.({ kind: 'error', code: -32601, message: '' } as PeerAnswer)
    expect(await asked).toMatchObject({ kind: 'refused', unable: 'a' })
    expect(log).toContain('ready')
  })

  it('line 2: go out with their states, under ids that every instance recognises', async () => {
    const { line, sent, answer } = start()
    const attach = (json: string) => JSON.stringify({ ...JSON.parse(json), state: 'sealed' })
    const handed = { a: { id: 'own', attach, accepts: () => true } }
    const asked = line.ask(TWO, { ...TERMS, handed })
    expect(sent).toMatchObject([
      { message: { id: 'own', state: 'sealed' }, eventId: 'own' },
      { message: { id: 'ask.2' }, eventId: undefined },
    ])
    expect(sent[1]?.message).not.toHaveProperty('state')
    answer('own')
    answer('ask.2')
    await asked
    expect([line.asked('own'), line.asked('ask.2')]).toEqual([true, false])
  })

  it('line 2: stay valid when the server stops, if all of them went out with their states', async () => {
    const question = (id: string) => ({ id, attach: (json: string) => json, accepts: () => true })
    const [all, some] = [start({ isDurable: true }), start()]
    const left = all.line.ask(TWO, { ...TERMS, handed: { a: question('1'), b: question('2') } })
    const refused = some.line.ask(TWO, { ...TERMS, handed: { a: question('1') } })
    all.line.endWaiting(DRAINING)
    some.line.endWaiting(DRAINING)
    expect(await left).toEqual({ kind: 'left' })
    expect(await refused).toEqual(REFUSED)
    expect([all.line.left, all.methods(), all.log]).toEqual([
      true,
      ['roots/list', 'roots/list'],
      ['park 0', 'unpark 0'],
    ])
    expect(some.methods().slice(2)).toEqual(['notifications/cancelled', 'notifications/cancelled'])
  })

  it('are withdrawn when the client cancels', async () => {
    const { line, sent } = start()
    const asked = line.ask(ONE, TERMS)
    line.cancel()
    expect(await asked).toEqual({ kind: 'gone' })
    expect(sent[1]).toMatchObject({ message: { method: 'notifications/cancelled' }, droppable: false })
  })
})

describe('a line with a store', () => {
  it('line 3: keeps the call before its questions are sent, and sends nothing meanwhile', async () => {
    const { line, sent, keeping, answer, taken } = start({ isDurable: true })
    const asked = line.ask(TWO, { ...TERMS, kept: KEPT })
    line.notify(LEVEL, {})
    expect([line.beat(1), sent.length, line.durable]).toEqual([true, 0, true])
    taken.elsewhere = true
    expect(await line.isTaken()).toBe(false)
    expect(keeping).toMatchObject([
      {
        call: { kept: KEPT },
        questions: [
          { id: 'kept.1', key: 'a', event: 8 },
          { id: 'kept.2', key: 'b', event: 9 },
        ],
        until: 6_000,
      },
    ])
    keeping[0]?.resolve()
    await settle()
    expect(sent.map(({ message }) => message.id)).toEqual(['kept.1', 'kept.2'])
    expect(keeping[0]?.questions.map(({ json }) => JSON.parse(json))).toEqual(
      sent.map(({ message }) => message),
    )
    line.notify(LEVEL, {})
    expect(sent).toHaveLength(3)
    answer('kept.1')
    answer('kept.2')
    expect(await asked).toMatchObject({ kind: 'answers' })
  })

  it('line 3: keeps the questions of a task, and no others', async () => {
    const { line, keeping, sent } = start({ isDurable: true })
    void line.ask(ONE, { ...TERMS, task: 'task' })
    expect(keeping).toMatchObject([{ call: { task: 'task' }, questions: [{ id: 'kept.1' }] }])
    const plain = start({ isDurable: true })
    void plain.line.ask(ONE, TERMS)
    expect([plain.keeping.length, plain.sent[0]?.message.id, sent.length]).toEqual([0, 'ask.1', 0])
    const unnumbered = start({ isDurable: true, channel: { last: undefined } })
    void unnumbered.line.ask(ONE, { ...TERMS, kept: KEPT })
    expect([unnumbered.keeping.length, unnumbered.line.durable]).toEqual([0, false])
    expect(start({ channel: { last: 7 } }).line.durable).toBe(false)
  })

  it.each([
    [new RondoError('LIMIT_PARKED'), 'LIMIT_PARKED'],
    [new Error('away'), 'SERVER_INTERNAL'],
  ])('sends no question that could not be kept: %s', async (fault, code) => {
    const { line, keeping, sent } = start({ isDurable: true })
    const asked = line.ask(ONE, { ...TERMS, kept: KEPT })
    keeping[0]?.reject(fault)
    const refused = await asked
    expect(refused).toMatchObject({ kind: 'refused', error: { code } })
    if (code === 'SERVER_INTERNAL') expect(refused).toMatchObject({ error: { cause: fault } })
    expect([sent.length, await line.isTaken()]).toEqual([0, false])
    line.notify(LEVEL, {})
    expect(sent).toHaveLength(1)
  })

  it('sends no question that the client cancelled while it was being kept', async () => {
    const { line, keeping, methods } = start({ isDurable: true })
    const asked = line.ask(ONE, { ...TERMS, kept: KEPT })
    line.cancel()
    keeping[0]?.resolve()
    expect(await asked).toEqual({ kind: 'gone' })
    expect(methods()).not.toContain('roots/list')
  })

  it('R6 line 3: keeps a call before its first effect, and then has an event to resume from', async () => {
    const { line, keeping, log, sent, taken } = start({ isDurable: true })
    const kept = line.keep(KEPT)
    await settle()
    expect(keeping).toMatchObject([{ call: { kept: KEPT }, questions: [], until: 9_000 }])
    line.notify(LEVEL, {})
    expect([log, sent]).toEqual([[], []])
    keeping[0]?.resolve()
    await kept
    expect(log).toEqual(['beat'])
    line.notify(LEVEL, {})
    expect([sent.length, await line.isTaken()]).toEqual([1, false])
    taken.elsewhere = true
    expect(await line.isTaken()).toBe(true)
  })

  it('R6 rejects if a call cannot be kept before its first effect', async () => {
    const { line, keeping, log, sent } = start({ isDurable: true })
    const kept = line.keep(KEPT)
    await settle()
    keeping[0]?.reject(new RondoError('LIMIT_PARKED'))
    await expect(kept).rejects.toMatchObject({ code: 'LIMIT_PARKED' })
    line.notify(LEVEL, {})
    expect([log, sent.length, await line.isTaken()]).toEqual([[], 1, false])
  })

  it('keeps no call that has ended, nor one that nobody could resume', async () => {
    const closed = start({ isDurable: true })
    closed.line.cancel()
    const silent = start({ isDurable: true, channel: { open: false } })
    const without = start()
    for (const { line } of [closed, silent, without]) await line.keep(KEPT)
    expect([closed, silent, without].flatMap(({ keeping }) => keeping)).toEqual([])
    const ended = start({ isDurable: true })
    const kept = ended.line.keep(KEPT)
    await settle()
    ended.line.leave()
    ended.keeping[0]?.resolve()
    await kept
    expect(ended.log).toEqual([])
  })

  it('keeps a call on a channel without heartbeats', async () => {
    const { line, keeping } = start({ isDurable: true, channel: { beat: undefined } })
    line.rest({ task: 'task', refuse: () => {} })
    line.notify(LEVEL, {})
    keeping[0]?.resolve()
    await settle()
    const kept = line.keep(KEPT)
    await settle()
    keeping[1]?.resolve()
    await kept
    expect(await line.isTaken()).toBe(false)
  })

  it('line 3: keeps a wait for a task before anything is sent', async () => {
    const { line, keeping, sent, log } = start({ isDurable: true })
    line.rest({ task: 'task', refuse: () => {} })
    line.notify(LEVEL, {})
    line.notify(LEVEL, {})
    expect([line.waiting, sent.length]).toEqual([true, 0])
    expect(keeping).toMatchObject([{ call: { task: 'task' }, questions: [], until: 5_000 + 24 * 3_600_000 }])
    keeping[0]?.resolve()
    await settle()
    expect(log).toEqual(['beat'])
    line.notify(LEVEL, {})
    expect([sent.length, keeping.length]).toEqual([1, 1])
  })

  it('keeps a wait for a task with the next heartbeat if the store was away', async () => {
    const { line, keeping, sent, log } = start({ isDurable: true })
    line.rest({ task: 'task', refuse: () => {} })
    expect(line.beat(1)).toBe(true)
    keeping[0]?.reject(new Error('away'))
    await settle()
    expect([await line.isTaken(), log]).toEqual([false, ['beat']])
    line.beat(1)
    expect([keeping.length, sent.length]).toEqual([2, 0])
    line.leave()
    keeping[1]?.resolve()
    await settle()
    expect(log).toEqual(['beat'])
  })

  it('waits with the questions of a task until the wait is kept', async () => {
    const { line, keeping, sent } = start({ isDurable: true })
    line.rest({ task: 'task', refuse: () => {} })
    line.notify(LEVEL, {})
    void line.ask(ONE, { ...TERMS, task: 'task' })
    await settle()
    expect(keeping).toHaveLength(1)
    keeping[0]?.resolve()
    await settle()
    expect([keeping.length, sent.length]).toEqual([2, 0])
    line.notify(LEVEL, {})
    expect(sent).toHaveLength(0)
    keeping[1]?.resolve()
    await settle()
    expect(sent.map(({ message }) => message.id)).toEqual(['kept.1'])
  })

  it('keeps no wait that nobody could resume', () => {
    const silent = start({ isDurable: true, channel: { open: false } })
    const without = start()
    const plain = start({ isDurable: true })
    silent.line.rest({ task: 'task', refuse: () => {} })
    without.line.rest({ task: 'task', refuse: () => {} })
    plain.line.rest({ refuse: () => {} })
    for (const { line, keeping, sent } of [silent, without, plain]) {
      line.notify(LEVEL, {})
      expect([keeping.length, sent.length]).toEqual([0, 1])
    }
  })
})

describe('the questions of another instance', () => {
  const questions = ['a', 'b', 'c'].map((key, index) => ({
    id: `c_x.${index}`,
    key,
    json: JSON.stringify({ id: `c_x.${index}` }),
    event: index + 1,
  }))

  it('J1 are sent again if the client has not seen them, and nobody has answered', async () => {
    const { line, sent, log, answer } = start({ isDurable: true, isTakenOver: true, size: () => 9 })
    const answers = { 'c_x.1': result('b') }
    const asked = line.askAgain(questions, answers, 1, TERMS)
    expect(sent).toEqual([{ message: { id: 'c_x.2' }, droppable: false }])
    expect(log).toEqual(['park 9', 'catch up'])
    answer('c_x.0', 'a')
    answer('c_x.2', 'c')
    expect(await asked).toEqual({ kind: 'answers', answers: { a: 'a', b: 'b', c: 'c' } })
  })

  it.each<[string, string, (one: ReturnType<typeof start>) => void]>([
    ['the client has cancelled the call', 'gone', ({ line }) => line.cancel()],
    [
      'the client has left, and resumed its stream elsewhere',
      'left',
      ({ line, taken }) => {
        taken.here = false
        line.cancel()
      },
    ],
    ['another instance has taken the call', 'left', ({ line }) => line.leave()],
  ])('J1 are not waited for if %s', async (_, kind, end) => {
    const one = start({ isDurable: true, isTakenOver: true })
    end(one)
    expect(await one.line.askAgain(questions, {}, 1, TERMS)).toEqual({ kind })
    expect(await one.line.ask(ONE, TERMS)).toEqual({ kind })
    expect(one.sent).toEqual([])
  })

  it('J1 end when their time is up, and stay valid when the server stops', async () => {
    const { line, log, sent } = start({ isDurable: true, isTakenOver: true })
    const asked = line.askAgain(questions, {}, 9, TERMS)
    line.endWaiting(DRAINING)
    expect(await asked).toEqual({ kind: 'left' })
    expect([log.includes('release'), sent]).toEqual([true, []])
    const enough = new AbortController()
    const timed = start().line.askAgain(questions, {}, 9, { ...TERMS, enough: enough.signal })
    enough.abort()
    expect(await timed).toEqual({ kind: 'answers', answers: {} })
  })

  it('J1 are not asked anew by the task that asked them', async () => {
    const { line, sent, answer } = start({ isDurable: true, isTakenOver: true })
    line.recall(questions.slice(0, 1), {}, 5)
    const asked = line.ask(ONE, { ...TERMS, task: 'task' })
    answer('c_x.0', 'a')
    expect(await asked).toEqual({ kind: 'answers', answers: { a: 'a' } })
    expect(sent).toEqual([])
  })

  it.each<[string, number, InputRequests]>([
    ['another', 1, { b: ROOTS }],
    ['more', 1, TWO],
    ['some others', 2, { a: ROOTS, c: ROOTS }],
  ])('J1 are forgotten if the task asks %s by now', async (_, count, now) => {
    const { line, keeping } = start({ isDurable: true, isTakenOver: true })
    line.recall(questions.slice(0, count), {}, 5)
    void line.ask(now, { ...TERMS, task: 'task' })
    void line.ask(ONE, { ...TERMS, task: 'task' })
    await settle()
    expect(keeping.map((one) => one.questions.map(({ key }) => key))).toEqual([Object.keys(now), ['a']])
  })

  it('J1 R6 leave a call without questions to others too when the server stops while it runs', async () => {
    const { line, log, taken } = start({ isDurable: true, isTakenOver: true })
    taken.elsewhere = true
    expect(await line.isTaken()).toBe(true)
    line.endWaiting(DRAINING)
    line.cancel()
    expect([line.left, log]).toEqual([true, []])
  })
})

describe('a line that ends', () => {
  it('J1 leave the call to an instance that has it, and end it if the client is gone', async () => {
    const { line, taken } = start({ isDurable: true, isTakenOver: true, channel: { open: false } })
    taken.elsewhere = true
    expect(await line.ask(ONE, TERMS)).toEqual({ kind: 'left' })
    taken.elsewhere = false
    expect(await line.ask(ONE, TERMS)).toEqual({ kind: 'gone' })
  })

  it('drops what was kept of its call, which may be another instance’s by now', async () => {
    const { line, log, taken } = start({ isDurable: true })
    const asked = line.ask(ONE, TERMS)
    taken.here = false
    line.cancel()
    expect(await asked).toEqual({ kind: 'left' })
    line.cancel()
    expect(log.filter((entry) => entry === 'drop')).toHaveLength(1)
    expect(await line.isTaken()).toBe(false)
  })

  it('J1 tells the client nothing if another instance continues the call', async () => {
    const { line, methods, log } = start({ isDurable: true })
    const asked = line.ask(ONE, TERMS)
    line.leave()
    expect(await asked).toEqual({ kind: 'left' })
    expect([methods(), log.includes('drop'), await line.isTaken()]).toEqual([['roots/list'], false, true])
  })
})

describe('a server that stops', () => {
  const resting = (task?: string) => {
    const refused: unknown[] = []
    return { refused, terms: { task, refuse: (error: unknown) => void refused.push(error) } }
  }

  it('refuses a call that waits here alone', async () => {
    const { line } = start({ isDurable: true })
    const asked = line.ask(ONE, TERMS)
    line.endWaiting(DRAINING)
    expect(await asked).toEqual(REFUSED)
    expect([line.closed, line.left]).toEqual([false, false])
    const other = start()
    const { refused, terms } = resting()
    other.line.rest(terms)
    other.line.endWaiting(DRAINING)
    expect([refused, other.line.left]).toEqual([[DRAINING], false])
    other.line.endWaiting(DRAINING)
    const idle = start()
    idle.line.endWaiting(DRAINING)
    expect(idle.line.closed).toBe(false)
  })

  it('J1 releases a wait for a task that is kept', async () => {
    const { line, keeping, log } = start({ isDurable: true })
    const { refused, terms } = resting('task')
    line.rest(terms)
    line.notify(LEVEL, {})
    keeping[0]?.resolve()
    await settle()
    line.endWaiting(DRAINING)
    expect([refused, line.left, log.at(-1)]).toEqual([[], true, 'release'])
    const unkept = start({ isDurable: true })
    unkept.line.rest(terms)
    unkept.line.endWaiting(DRAINING)
    expect([refused.length, unkept.line.left]).toEqual([1, false])
  })

  it('J1 releases a call with questions that are kept, also those of a task', async () => {
    for (const wish of [{ kept: KEPT }, { task: 'task' }]) {
      const { line, keeping, log, methods } = start({ isDurable: true })
      const { refused, terms } = resting('task')
      if (wish.task) line.rest(terms)
      const asked = line.ask(ONE, { ...TERMS, ...wish })
      keeping[0]?.resolve()
      await settle()
      line.endWaiting(DRAINING)
      expect(await asked).toEqual({ kind: 'left' })
      expect([log.at(-1), methods(), refused]).toEqual(['unpark 0', ['roots/list'], []])
      expect(log).toContain('release')
    }
  })

  it('J1 leaves a call that is kept and runs to another instance, which waits for the lease', async () => {
    const { line, keeping, log } = start({ isDurable: true })
    const kept = line.keep(KEPT)
    await settle()
    keeping[0]?.resolve()
    await kept
    line.endWaiting(DRAINING)
    expect([line.left, log.includes('release')]).toEqual([true, false])
  })

  it('does not refuse a wait that is over', () => {
    const { line } = start()
    const [first, second] = [resting(), resting()]
    const stopFirst = line.rest(first.terms)
    const stopSecond = line.rest(second.terms)
    stopFirst()
    expect(line.waiting).toBe(true)
    line.endWaiting(DRAINING)
    stopSecond()
    expect(line.waiting).toBe(false)
    line.endWaiting(DRAINING)
    expect([first.refused, second.refused]).toEqual([[], [DRAINING]])
  })
})
