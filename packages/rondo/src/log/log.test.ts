import fc from 'fast-check'
import { describe, expect, it, vi } from 'vitest'
import { callTool } from '../../../../test/support/echo-service.ts'
import { misuse, RondoError } from '../errors.ts'
import { generateKey } from '../seal/key-ring.ts'
import { createServer } from '../serve/server.ts'
import type { LogFacts, RoundLine } from './event.ts'
import { createJsonLog } from './json.ts'
import { createLog, type LogScreen } from './log.ts'
import { batchLogLines } from './standard-error.ts'

function screenOf(lines: string[], given: Partial<LogScreen> = {}): LogScreen {
  return {
    write: (line) => void lines.push(line),
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
  protocolVersion: fc.option(fc.string(), { nil: undefined }),
  upstream: fc.option(fc.string(), { nil: undefined }),
  upstreamVersion: fc.option(fc.string(), { nil: undefined }),
  ms: fc.nat(),
}

describe('the line of a round', () => {
  it('is the JSON of its event, whatever its names contain', () => {
    fc.assert(
      fc.property(fc.record(members), (facts) => {
        const lines: string[] = []
        createLog({ log: 'json', instance: 'one', now: () => 5 }, screenOf(lines)).log(facts)
        const origin = { time: '1970-01-01T00:00:00.005Z', level: 'info', instance: 'one' }
        expect(lines).toEqual([JSON.stringify({ ...origin, ...facts })])
      }),
    )
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
  it('R11 is left out if the clock has no time, without any other effect', () => {
    const lines: string[] = []
    let now = Number.NaN
    const { log } = createLog({ log: 'json', now: () => now }, screenOf(lines))
    log(roundOf('a'))
    now = 5
    log(roundOf('b'))
    expect(lines.map((line) => JSON.parse(line).flow)).toEqual(['b'])
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

  it('gets one line break a line, alone or together with others', async () => {
    vi.resetModules()
    const fresh = {
      ...(await import('./standard-error.ts')),
      ...(await import('./json.ts')),
      ...(await import('./log.ts')),
    }
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
    const fresh = {
      ...(await import('./standard-error.ts')),
      ...(await import('./json.ts')),
      ...(await import('./log.ts')),
    }
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
  it('has the members of a round in the order of its documentation', async () => {
    const lines: string[] = []
    const server = createServer({
      name: 'asker',
      version: '1.0.0',
      keys: generateKey(),
      log: createJsonLog({ write: (line) => void lines.push(line) }),
    })
    server.tool('go', {}, async (_args, ctx) => {
      await ctx.confirm('sure', 'Sure?')
      return 'went'
    })
    const _meta = { 'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } } }
    const { headers, message } = callTool('go', {}, { _meta })
    const body = JSON.stringify(message)
    await server.fetch(new Request('http://localhost/mcp', { method: 'POST', headers, body }))
    await server.close()
    const members =
      'time level instance event flow round method target outcome asks replayed executed stateBytes'
    const line = lines.find((line) => JSON.parse(line).event === 'round') ?? '{}'
    expect(Object.keys(JSON.parse(line)).join(' ')).toBe(`${members} keyId ms`)
  })
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
