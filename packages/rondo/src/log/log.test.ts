import fc from 'fast-check'
import { describe, expect, it, vi } from 'vitest'
import { callTool } from '../../../../test/support/echo-service.ts'
import { misuse, RondoError } from '../errors.ts'
import { generateKey } from '../seal/key-ring.ts'
import { createServer } from '../serve/server.ts'
import type { LogFacts, RoundLine } from './event.ts'
import { batchLogLines, createJsonLog, createLog, type LogScreen } from './log.ts'

function screenOf(lines: string[], given: Partial<LogScreen> = {}): LogScreen {
  return {
    write: (line) => void lines.push(line().replace(/\n$/, '')),
    isTerminal: false,
    colors: false,
    production: false,
    ...given,
  }
}

type Described = { readonly [member: string]: unknown }

function logged(error: unknown, settings: Parameters<typeof createLog>[0] = {}): Described {
  const lines: string[] = []
  createLog(settings, screenOf(lines)).log({ event: 'warning', message: 'It failed', error })
  expect(lines).toHaveLength(1)
  return JSON.parse(lines[0] ?? '').error
}

describe('the JSON log', () => {
  it('contains our own errors in full, and the stack of others', () => {
    const error = logged(misuse('The PostgreSQL store needs the package "pg": install it'))
    expect(error).toMatchObject({
      name: 'TypeError',
      message: 'The PostgreSQL store needs the package "pg": install it',
      stack: expect.arrayContaining([expect.stringContaining('log.test.ts')]),
    })
    expect((error.stack as string[])[0]).toContain('log.test.ts')
  })

  it.each([
    ['an error of the handler', new Error('canary')],
    ['a TypeError of the handler', new TypeError('canary')],
    ['a thrown string', 'canary'],
    [
      'an error inside one of ours',
      new RondoError('SERVER_INTERNAL', undefined, { cause: new Error('canary') }),
    ],
  ])('T16 does not contain the message of %s', (_, error) => {
    expect(JSON.stringify(logged(error))).not.toContain('canary')
  })

  it('T20 bounds what an author built of what a client sent: the name and the frames of an error', () => {
    const long = 'x'.repeat(1_000_000)
    const error = Object.assign(new Error('no'), { name: long, stack: `Error\n    at ${long}:1:1` })
    expect(JSON.stringify(logged(error)).length).toBeLessThan(1_000)
  })

  it('contains the cause of our own errors', () => {
    const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    expect(logged(new RondoError('STORE_UNAVAILABLE', 'The store is away', { cause }))).toMatchObject({
      code: 'STORE_UNAVAILABLE',
      message: '[STORE_UNAVAILABLE] The store is away',
      cause: { name: 'Error', code: 'ECONNREFUSED' },
    })
  })

  it('contains the frames of the author, and others only if there are none', () => {
    const ours = 'at ask (/app/node_modules/rondo/dist/index.js:1:1)'
    const theirs = 'at handler (/app/server.js:7:1)'
    const lines = ['at Array.map (<anonymous>)', ours, 'at run (node:async_hooks:1:1)']
    const withStack = (error: Error, frames: readonly string[]): Error =>
      Object.assign(error, { stack: ['Error: x', ...frames.map((frame) => `    ${frame}`)].join('\n') })
    expect(logged(withStack(new Error('x'), [...lines, theirs]))).toMatchObject({ stack: [theirs] })
    expect(logged(withStack(new Error('x'), lines))).toMatchObject({ stack: lines })
    expect(logged(withStack(new RondoError('REPLAY_NESTED'), [...lines, theirs]))).toMatchObject({
      stack: [theirs],
    })
    expect(logged(withStack(new RondoError('REPLAY_NESTED'), lines))).not.toHaveProperty('stack')
  })

  it('does not follow circular causes', () => {
    const error = new Error('a')
    error.cause = error
    expect(JSON.stringify(logged(error)).length).toBeLessThan(20_000)
  })

  const getter = Object.defineProperty(new Error('a'), 'stack', {
    get() {
      throw new Error('no stack')
    },
  })
  it.each<[string, unknown]>([
    ['an error whose getters throw', getter],
    ['an error with a stack that is no text', Object.assign(new Error('a'), { stack: 5 })],
    ['an error with a name that is no JSON', Object.assign(new Error('a'), { name: 5n })],
    ['an error with a message that is no text', Object.assign(new Error('a'), { message: Symbol('x') })],
    ['an object without a prototype', Object.create(null)],
    ['a symbol', Symbol('x')],
  ])('R11 a line about %s is written', (_name, error) => {
    const lines: string[] = []
    createLog({ log: 'json', logAuthorErrors: true }, screenOf(lines)).log({
      event: 'warning',
      message: 'Failed',
      error,
    })
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ message: 'Failed', error: expect.anything() })
  })
})

/** Every member, so that a new one has to be added here. */
const members: { readonly [M in keyof Required<RoundLine>]: fc.Arbitrary<RoundLine[M]> } = {
  event: fc.constant('round'),
  flow: fc.string({ unit: 'binary' }),
  round: fc.nat(),
  method: fc.constantFrom('tools/call', 'prompts/get', 'resources/read'),
  target: fc.string({ unit: 'binary' }),
  outcome: fc.constantFrom('complete', 'tool_error', 'input_required', 'moved', 'task', 'refused', 'waiting'),
  asks: fc.option(fc.array(fc.record({ key: fc.string(), kind: fc.constantFrom('form', 'manual') })), {
    nil: undefined,
  }),
  events: fc.option(fc.array(fc.string()), { nil: undefined }),
  moved: fc.constantFrom(undefined, 'effect', 'drain', 'shed', 'time'),
  task: fc.option(fc.string(), { nil: undefined }),
  turn: fc.option(fc.nat(), { nil: undefined }),
  code: fc.option(fc.string(), { nil: undefined }),
  replayed: fc.nat(),
  executed: fc.nat(),
  stateBytes: fc.option(fc.nat(), { nil: undefined }),
  keyId: fc.option(fc.string(), { nil: undefined }),
  sealedVersion: fc.option(fc.string(), { nil: undefined }),
  ms: fc.nat(),
}

/** Its line, which is built from parts, says the same as `JSON.stringify` would. */
function expectJsonOf(facts: RoundLine): void {
  const lines: string[] = []
  const { log, observer } = createLog({ log: 'json', instance: 'one', now: () => 0 }, screenOf(lines))
  log(facts)
  observer.event?.({ level: 'info', instance: 'one', ...facts })
  const origin = { time: '1970-01-01T00:00:00.000Z', level: 'info', instance: 'one' }
  expect(JSON.parse(lines[0] ?? '')).toEqual(JSON.parse(JSON.stringify({ ...origin, ...facts })))
  // No member comes twice.
  expect(lines[0]).toHaveLength(lines[1]?.length ?? 0)
}

describe('the line of a round', () => {
  it('is the JSON of its event, whatever its names contain', () => {
    fc.assert(
      fc.property(fc.record(members), (facts) => {
        expectJsonOf(facts)
      }),
    )
  })
  it('is right for a name that comes again with another method, outcome or kind, and after many names', () => {
    const methods = ['tools/call', 'prompts/get'] as const
    const outcomes = ['complete', 'input_required'] as const
    const kinds = ['form', 'manual'] as const
    const both = methods.flatMap((method) =>
      outcomes.flatMap((outcome) => kinds.map((kind) => ({ method, outcome, asks: [{ key: 'k', kind }] }))),
    )
    const many = Array.from({ length: 2_100 }, (_, index) => ({ target: `t${index}`, code: `c${index}` }))
    for (const facts of [...both, ...both, ...many, ...both]) {
      expectJsonOf({ ...roundOf('a'), ...facts })
    }
  })
  it('is right for a round without work, whichever of its other members it has', () => {
    const others: Partial<RoundLine>[] = [
      {},
      { asks: [] },
      { asks: [{ key: 'k', kind: 'url' }] },
      { events: ['e'] },
      { moved: 'drain' },
      { task: 't' },
      { turn: 0 },
      { code: 'C' },
      { replayed: 1 },
      { executed: 1 },
      { stateBytes: 0 },
      { keyId: 'k' },
      { sealedVersion: '1' },
      { replayed: 1, code: 'C' },
      { executed: 1, code: 'C' },
    ]
    for (const other of [...others, ...others]) {
      expectJsonOf({ ...roundOf('a'), ...other })
    }
  })
  it('T20 is one line of JSON for a flow that only begins like an id', () => {
    const lines: string[] = []
    const { log } = createLog({ log: 'json' }, screenOf(lines))
    for (const flow of ['a"', 'a\nb', 'a\n', '\na', 'a\\', 'a\ud800', 'a\u2028']) {
      log(roundOf(flow))
      expect(lines.at(-1)).not.toContain('\n')
      expect(JSON.parse(lines.at(-1) ?? '').flow).toBe(flow)
    }
  })
  it('T20 remembers a bounded number of names, and no long one', () => {
    const lines: string[] = []
    const { log } = createLog({ log: 'json' }, screenOf(lines))
    let most = 0
    let longest = 0
    const set = Map.prototype.set
    const spied = vi.spyOn(Map.prototype, 'set').mockImplementation(function (
      this: Map<unknown, unknown>,
      key,
      value,
    ) {
      set.call(this, key, value)
      most = Math.max(most, this.size)
      longest = Math.max(longest, String(key).length)
      return this
    })
    try {
      for (let index = 0; index < 2_100; index++) log({ ...roundOf('a'), target: `many${index}` })
      for (const length of [128, 129, 10_000]) log({ ...roundOf('a'), target: 'x'.repeat(length) })
    } finally {
      spied.mockRestore()
    }
    expect(JSON.parse(lines.at(-1) ?? '').target).toHaveLength(10_000)
    expect([most, longest]).toEqual([1_000, 128])
  })
  it('has its numbers as JSON has them, also when they come again', () => {
    const lines: string[] = []
    const { log } = createLog({ log: 'json' }, screenOf(lines))
    const numbers = [0, 1, 255, 256, -1, -0, 0.5, 1e21, 2 ** 53]
    for (const number of [...numbers, ...numbers]) {
      log({ ...roundOf('a'), round: number, ms: number })
      expect(lines.at(-1)).toContain(`"round":${JSON.stringify(number)},`)
      expect(lines.at(-1)).toMatch(new RegExp(`"ms":${JSON.stringify(number).replace('+', '\\+')}}$`))
    }
  })
  it('has the time of its event where a second begins and ends', () => {
    const lines: string[] = []
    const { log } = createLog({ log: 'json' }, screenOf(lines))
    for (const time of [0, 999, 1_000, 1_999, 2_000, 1_999, 1_000, 999]) {
      log(roundOf('a'), time)
      expect(JSON.parse(lines.at(-1) ?? '').time).toBe(new Date(time).toISOString())
    }
  })
  it('R11 is never written with the time of another line, if the clock is wrong', () => {
    const lines: (() => string)[] = []
    const { log } = createLog({ log: 'json' }, screenOf([], { write: (line) => void lines.push(line) }))
    for (const time of [9e15, 9e15, 5, 9e15, 9e15, 9e15 + 1, 5]) log(roundOf('a'), time)
    const times = lines.flatMap((line) => {
      try {
        return [JSON.parse(line()).time]
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError)
        return []
      }
    })
    expect(times).toEqual(['1970-01-01T00:00:00.005Z', '1970-01-01T00:00:00.005Z'])
  })
  it('has the time of its event to the millisecond, whatever came before', () => {
    const time = fc.integer({ min: 0, max: 8.64e15 })
    const near = fc.tuple(time, fc.array(fc.integer({ min: -2_000, max: 2_000 })))
    fc.assert(
      fc.property(near, ([start, steps]) => {
        const lines: string[] = []
        let now = start
        const { log } = createLog({ log: 'json', now: () => now }, screenOf(lines))
        for (const step of [0, ...steps]) {
          now = Math.min(8.64e15, Math.max(0, now + step))
          log(roundOf('a'))
          expect(JSON.parse(lines.at(-1) ?? '').time).toBe(new Date(now).toISOString())
          log(roundOf('b'), 5)
          expect(JSON.parse(lines.at(-1) ?? '').time).toBe('1970-01-01T00:00:00.005Z')
        }
      }),
    )
  })
})

function roundOf(flow: string): RoundLine {
  const request = { event: 'round', flow, round: 1, method: 'tools/call', target: 'go' } as const
  return { ...request, outcome: 'complete', replayed: 0, executed: 0, ms: 0 }
}

describe('standard error', () => {
  it('gets a lone line and warnings at once, and lines of a busy turn in one write, in order', async () => {
    const writes: string[][] = []
    const written = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
      const flows = String(text)
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).flow)
      return writes.push(flows) > 0
    })
    try {
      batchLogLines()
      const { log } = createLog({ log: 'json' })
      const turn = () => new Promise((resolve) => setImmediate(resolve))
      log(roundOf('a'))
      expect(writes).toEqual([['a']])
      log(roundOf('b'))
      log(roundOf('c'))
      expect(writes).toHaveLength(1)
      await turn()
      expect(writes).toEqual([['a'], ['b', 'c']])
      writes.length = 0
      // The turn before was busy, so nothing is written until this one ends.
      log(roundOf('a'))
      log(roundOf('b'))
      expect(writes).toEqual([])
      log({ event: 'warning', flow: 'c', message: 'now' })
      log(roundOf('d'))
      expect(writes).toEqual([['a', 'b', 'c']])
      await turn()
      expect(writes).toEqual([['a', 'b', 'c'], ['d']])
      writes.length = 0
      log(roundOf('a'))
      expect(writes).toEqual([])
      await turn()
      expect(writes).toEqual([['a']])
      // A turn with one line is not busy.
      log(roundOf('b'))
      expect(writes).toEqual([['a'], ['b']])
      writes.length = 0
      await turn()
      const many = Array.from({ length: 140 }, (_, index) => String(index))
      for (const flow of many) log(roundOf(flow))
      expect(writes.map((flows) => flows.length)).toEqual([1, 64, 64])
      await turn()
      expect(writes.flat()).toEqual(many)
    } finally {
      written.mockRestore()
    }
  })

  it('gets lines with the time of their event, and the others if one cannot be formatted or the stream throws', async () => {
    const writes: string[] = []
    let isBroken = false
    const written = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
      if (isBroken) throw new Error('broken')
      return writes.push(String(text)) > 0
    })
    try {
      batchLogLines()
      let now = 0
      const { log } = createLog({ log: 'json', now: () => now })
      const turn = () => new Promise((resolve) => setImmediate(resolve))
      await turn()
      log(roundOf('a'))
      now = 1
      log(roundOf('b'))
      now = 2
      log({ ...roundOf('c'), events: [1n] as never })
      now = 3
      log(roundOf('d'))
      now = 9
      await turn()
      const lines = writes.flatMap((text) => text.trimEnd().split('\n')).map((line) => JSON.parse(line))
      expect(lines.map(({ flow, time }) => `${flow} ${time.slice(-4)}`)).toEqual([
        'a 000Z',
        'b 001Z',
        'd 003Z',
      ])
      isBroken = true
      log(roundOf('e'))
      log(roundOf('f'))
      await turn()
      isBroken = false
      log(roundOf('g'))
      await turn()
      expect(writes.at(-1)).toContain('"flow":"g"')
    } finally {
      written.mockRestore()
    }
  })

  const fits = (text: string) => Buffer.byteLength(text)
  const full = () => {
    throw new Error('EAGAIN')
  }

  it.each([
    ['everything', {}, fits, 1, ''],
    ['a part, because the pipe is full', {}, (text: string) => fits(text) - 9, 1, ',"ms":0}\n'],
    ['nothing, because the pipe is full or broken', {}, full, 1, 'all'],
    ['nothing, because lines are waiting in the stream', { writableLength: 7 }, fits, 0, 'all'],
    ['nothing, because it is a terminal', { isTTY: true }, fits, 0, 'all'],
    ['nothing, because it is a stream of another file', { fd: 3 }, fits, 0, 'all'],
    ['nothing, because it is a stream without a file', { fd: undefined }, fits, 0, 'all'],
  ])('takes %s directly, and the stream the rest', async (_, given, write, calls, rest) => {
    const { stderr } = process
    let bytes = ''
    const direct = vi.fn((_fd: number, text: string, _at: null, encoding: BufferEncoding) => {
      const written = write(text)
      bytes += Buffer.from(text, encoding).toString('utf8', 0, written)
      return written
    })
    // Other tests in this process may have loaded the log already, with the real function.
    vi.resetModules()
    vi.doMock('node:fs', async (original) => ({ ...(await original<object>()), writeSync: direct }))
    const fresh = await import('./log.ts')
    const once = vi.spyOn(process, 'once').mockReturnThis()
    const streamed: string[] = []
    const stream = vi.spyOn(Object.getPrototypeOf(stderr), 'write').mockImplementation((text) => {
      return streamed.push(Buffer.from(text as string).toString()) > 0
    })
    const own = { fd: 2, isTTY: false, writableLength: 0, ...given }
    for (const [name, value] of Object.entries(own))
      Object.defineProperty(stderr, name, { value, configurable: true, writable: true })
    try {
      fresh.batchLogLines()
      const { log } = fresh.createLog({ log: 'json' })
      log({ event: 'warning', message: 'ü' })
      log(roundOf('ü'))
      await new Promise((resolve) => setImmediate(resolve))
      const found = streamed.at(-1) ?? ''
      expect(direct).toHaveBeenCalledTimes(2 * calls)
      if (rest === 'all') expect(streamed.join('')).toMatch(/^\{.*"ü".*\}\n\{.*"flow":"ü".*\}\n$/)
      else expect(found).toBe(rest)
      if (rest === '') {
        expect(bytes).toMatch(/^\{.*"ü".*\}\n\{.*"flow":"ü".*\}\n$/)
        expect(stream).not.toHaveBeenCalled()
      }
    } finally {
      vi.doUnmock('node:fs')
      vi.resetModules()
      once.mockRestore()
      stream.mockRestore()
      for (const name of Object.keys(own)) Reflect.deleteProperty(stderr, name)
    }
  })

  it('gets one line break a line, alone or together with others', async () => {
    vi.resetModules()
    const fresh = await import('./log.ts')
    const once = vi.spyOn(process, 'once').mockReturnThis()
    const alone = vi.spyOn(console, 'error').mockImplementation(() => {})
    const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
    try {
      const write = fresh.createJsonLog({ now: () => 0 })
      const event = { level: 'info', instance: 'one', ...roundOf('a') } as const
      write(event)
      fresh.createLog({ log: 'json' }).log(roundOf('b'))
      for (const [text] of alone.mock.calls) expect(text).toMatch(/^\{[^\n]*\}$/)
      expect(alone).toHaveBeenCalledTimes(2)
      fresh.batchLogLines()
      write(event)
      expect(written.mock.calls[0]?.[0]).toMatch(/^\{[^\n]*\}\n$/)
    } finally {
      once.mockRestore()
      alone.mockRestore()
      written.mockRestore()
    }
  })

  it('gets the lines of a turn in which the process exits, and what others log while it exits', async () => {
    vi.resetModules()
    const fresh = await import('./log.ts')
    const once = vi.spyOn(process, 'once')
    const writes: string[] = []
    const take = (text: unknown) => writes.push(JSON.parse(String(text)).flow) > 0
    const written = vi.spyOn(process.stderr, 'write').mockImplementation(take)
    const alone = vi.spyOn(console, 'error').mockImplementation(take)
    try {
      fresh.batchLogLines()
      const [, exit] = once.mock.calls.find(([name]) => String(name) === 'exit') ?? []
      const { log } = fresh.createLog({ log: 'json' })
      log(roundOf('a'))
      log(roundOf('b'))
      expect(writes).toEqual(['a'])
      exit?.(0)
      expect(writes).toEqual(['a', 'b'])
      log(roundOf('c'))
      log(roundOf('d'))
      expect(writes).toEqual(['a', 'b', 'c', 'd'])
      if (exit) process.off('exit', exit)
    } finally {
      once.mockRestore()
      written.mockRestore()
      alone.mockRestore()
    }
  })
})

describe('the form of the log', () => {
  const author = (): Error => new Error('Bob is not there')
  function lineOf(given: Partial<LogScreen>, settings: Parameters<typeof createLog>[0] = {}): string {
    const lines: string[] = []
    const error = author()
    createLog({ now: () => 0, instance: 'one', ...settings }, screenOf(lines, given)).log({
      event: 'fault',
      flow: 'f1',
      round: 2,
      task: 't1',
      turn: 3,
      method: 'tools/call',
      target: 'greet',
      error,
    })
    expect(lines).toHaveLength(1)
    return lines[0] ?? ''
  }

  it.each<[string, Partial<LogScreen>, Parameters<typeof createLog>[0], 'pretty' | 'json', boolean]>([
    ['on a terminal', { isTerminal: true }, {}, 'pretty', true],
    ['on a terminal in production', { isTerminal: true, production: true }, {}, 'json', false],
    ['elsewhere', {}, {}, 'json', false],
    ['elsewhere in development mode', {}, { dev: true }, 'json', true],
    ['if it is chosen', { isTerminal: true }, { log: 'json' }, 'json', true],
    ['if it is chosen', {}, { log: 'pretty' }, 'pretty', false],
    ['elsewhere with logAuthorErrors', {}, { logAuthorErrors: true }, 'json', true],
    [
      'on a terminal without logAuthorErrors',
      { isTerminal: true },
      { logAuthorErrors: false },
      'pretty',
      false,
    ],
  ])('%s (%j, %j) is %s; messages of authors: %s', (_, screen, settings, form, messages) => {
    const line = lineOf(screen, settings)
    expect(line.startsWith('{') ? 'json' : 'pretty').toBe(form)
    expect(line.includes('Bob is not there')).toBe(messages)
    // The place of what was thrown is there in any case, and so is the place of the line.
    expect(line).toContain('at author (')
    for (const id of ['f1', 't1']) expect(line).toContain(id)
  })

  it('has colours where the terminal has them', () => {
    const line = lineOf({ isTerminal: true, colors: true })
    expect(line).toContain('\x1b[31mthrew\x1b[0m')
    expect(lineOf({ isTerminal: true })).not.toContain('\x1b')
  })

  it('is one line a round, for people', () => {
    const lines: string[] = []
    const { log } = createLog({ now: () => 0 }, screenOf(lines, { isTerminal: true }))
    const round = { flow: 'f1', round: 2, method: 'tools/call', target: 'greet\n\x1b[2J' } as const
    const counts = { replayed: 1, executed: 2, stateBytes: 300, ms: 4 }
    log({
      event: 'round',
      ...round,
      outcome: 'input_required',
      asks: [{ key: 'word', kind: 'form' }],
      ...counts,
    })
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatch(
      /^00:00:00\.000 · greet \[2J {2}round 2 {2}input_required: word {2}4 ms, 2 ran, 1 replayed, 300 bytes flow f1$/,
    )
    expect(lines[0]).not.toContain('\x1b')
  })
})

describe('the log of a server', () => {
  it.each([
    [
      'a nested field',
      { where: { type: 'object', properties: {} } },
      'The field "where" cannot be asked for',
    ],
    ['a password', { password: { type: 'string' } }, 'The field "password" looks like a secret'],
  ])('explains what is wrong with a question that asks for %s', async (_, properties, advice) => {
    const lines: string[] = []
    const server = createServer({
      name: 'forms',
      version: '1.0.0',
      keys: generateKey(),
      log: createJsonLog({ write: (line) => void lines.push(line) }),
    })
    server.tool('go', {}, async (_args, ctx) => {
      await ctx.ask('q', { message: 'Where?', schema: { type: 'object', properties } as never })
      return 'went'
    })
    const { headers, message } = callTool('go')
    const body = JSON.stringify(message)
    await server.fetch(new Request('http://localhost/mcp', { method: 'POST', headers, body }))
    await server.close()
    expect(lines.map((line) => JSON.parse(line)).find(({ event }) => event === 'fault')).toMatchObject({
      error: { message: expect.stringContaining(advice) },
    })
  })
})

describe('a log function', () => {
  const event: LogFacts = { event: 'warning', message: 'x' }

  it.each<[string, () => unknown]>([
    [
      'throws',
      () => {
        throw new Error('full disk')
      },
    ],
    ['rejects', () => Promise.reject(new Error('full disk'))],
    [
      'is a thenable that throws',
      () => ({
        // biome-ignore lint/suspicious/noThenProperty: such an object is the point.
        then() {
          throw new Error('full disk')
        },
      }),
    ],
  ])('R11 that %s is reported once a minute, without any other effect', async (_, log) => {
    const lines: string[] = []
    let now = 0
    const { log: write } = createLog({ log, now: () => now }, screenOf(lines))
    const settle = () => new Promise((resolve) => setImmediate(resolve))
    write(event)
    write(event)
    await settle()
    expect(lines).toHaveLength(1)
    expect(lines[0]).toContain('The log function threw or rejected')
    now = 60_000
    write(event)
    await settle()
    expect(lines).toHaveLength(2)
  })
})
