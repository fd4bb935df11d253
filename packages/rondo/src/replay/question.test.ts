import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  accept,
  askedKeys,
  deferredPromise,
  type FlowOptions,
  type Handler,
  refusal,
  replayFlow,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { canonicalJson } from '../lib/json.ts'
import { DRAWS_FORMS } from '../protocol/common/apps.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import type { ReplayInput } from './input.ts'
import {
  type Ask,
  confirmQuestion,
  formQuestion,
  questionText,
  rootsQuestion,
  samplingQuestion,
  unaskable,
  urlQuestion,
} from './question.ts'
import type { RunReport } from './run-state.ts'

const schema = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] } as const
const URL_OF_A_PAGE = 'https://example.com/'
const APP = 'ui://tables/seats'

/** Returns the request of the question that a run asks. */
function requestOf({ ending }: RunReport, key = 'q'): unknown {
  return ending.kind === 'asking' ? ending.questions.get(key)?.request : ending
}

function messageOf(report: RunReport): string {
  return (requestOf(report) as { params: { message: string } }).params.message
}

const asking = (handler: Handler, options?: FlowOptions) => replayFlow(handler, options)

describe('a question', () => {
  const params = { messages: [], maxTokens: 5 }
  it.each<[string, () => Ask, Partial<Ask>]>([
    [
      'a form',
      () => formQuestion({ message: 'M', schema }),
      {
        kind: 'form',
        unasked: true,
        request: {
          method: 'elicitation/create',
          params: { mode: 'form', message: 'M', requestedSchema: schema },
        },
      },
    ],
    [
      'a confirmation',
      () => confirmQuestion('M', { label: 'Delete' }),
      {
        kind: 'confirm',
        unasked: false,
        request: {
          method: 'elicitation/create',
          params: {
            mode: 'form',
            message: 'M',
            requestedSchema: {
              type: 'object',
              properties: { confirm: { type: 'boolean', title: 'Delete' } },
              required: ['confirm'],
            },
          },
        },
      },
    ],
    [
      'a page',
      () => urlQuestion({ message: 'M', url: URL_OF_A_PAGE }),
      {
        kind: 'url',
        unasked: false,
        request: { method: 'elicitation/create', params: { mode: 'url', message: 'M', url: URL_OF_A_PAGE } },
      },
    ],
    [
      'a completion',
      () => samplingQuestion(params),
      { kind: 'sampling', unasked: false, request: { method: 'sampling/createMessage', params } },
    ],
    ['roots', rootsQuestion, { kind: 'roots', unasked: false, request: { method: 'roots/list' } }],
  ])('sends a request in the words of the specification: %s', (_what, question, expected) => {
    const { kind, unasked, request } = question()
    expect({ kind, unasked, request }).toEqual(expected)
  })

  it('goes out as it is, but a page to visit gets an id of its own', async () => {
    const form = {
      method: 'elicitation/create',
      params: { mode: 'form', message: 'M', requestedSchema: schema },
    }
    expect(requestOf(await asking((ctx) => ctx.ask('q', { message: 'M', schema })).round())).toEqual(form)
    const report = await asking((ctx) =>
      Promise.all([
        ctx.sample('q', params),
        ...['a', 'b'].map((key) => ctx.visit(key, { message: 'M', url: URL_OF_A_PAGE })),
      ]),
    ).round()
    expect(requestOf(report)).toEqual({ method: 'sampling/createMessage', params })
    const [a, b] = ['a', 'b'].map((key) => requestOf(report, key) as { params: { elicitationId: string } })
    expect(a?.params.elicitationId).toMatch(/^[0-9a-f]{32}$/)
    expect(b?.params.elicitationId).not.toBe(a?.params.elicitationId)
  })

  it('T4 refuses a field that looks like a secret, unless the author says why it is none', async () => {
    const pin = {
      message: 'M',
      schema: { type: 'object', properties: { password: { type: 'string' } } },
    } as const
    expect(() => formQuestion(pin)).toThrow(TypeError)
    expect(formQuestion({ ...pin, allowSecretLike: 'the word of a game' }).kind).toBe('form')
  })
})

describe('a form that an app draws', () => {
  const question = { message: 'M', schema, ui: APP }
  const draws = { elicitation: { form: {} }, extensions: DRAWS_FORMS }

  it.each<[string, Handler]>([
    ['ask', (ctx) => ctx.ask('q', question)],
    ['offer', async (ctx) => void (await ctx.offer('q', question))],
  ])('names the app to clients that declare such forms, and to no others: ctx.%s', async (_what, handler) => {
    for (const hooks of [undefined, { open: async () => 'id', close: async () => {} }]) {
      const appIn = async (capabilities: ClientCapabilities, asks = handler): Promise<unknown> => {
        let shown: unknown
        const report = await asking(asks, { capabilities }).round(undefined, {
          input: {
            hooks,
            async publish(questions) {
              shown = questions.get('q')?.request
            },
          },
        })
        const request = (requestOf(report) ?? shown) as {
          params: { _meta?: object }
        }
        expect(request.params).toMatchObject({ mode: 'form', message: 'M', requestedSchema: schema })
        return request.params._meta
      }
      expect(await appIn(draws)).toEqual({ ui: { resourceUri: APP } })
      expect(await appIn({ elicitation: { form: {} } })).toBeUndefined()
      const plain: Handler = (ctx) => ctx.ask('q', { message: 'M', schema })
      expect(await appIn(draws, plain)).toBeUndefined()
    }
  })

  it('R3 has the app in its text, whatever the client declares', () => {
    const { kind, request } = formQuestion({ message: 'M', schema })
    const text = questionText(formQuestion(question))
    expect(text).toBe(canonicalJson([kind, { ...request, params: { ...request.params, ui: APP } }]))
    expect(questionText(formQuestion({ message: 'M', schema }))).toBe(canonicalJson([kind, request]))
  })

  it.each([
    ['https://example.com/', '"https://example.com/"'],
    [`ui://${'x'.repeat(3_000)}`, `"ui://${'x'.repeat(95)}"`],
    [5, 'number'],
    [null, 'object'],
  ])('refuses a ui that is not the URI of an app: %j', (ui, got) => {
    expect(() => formQuestion({ ...question, ui: ui as string })).toThrow(
      `such as 'ui://tables/seats'; got ${got}.`,
    )
  })
})

describe('an answer to a page, a completion or roots', () => {
  const visit: Handler = async (ctx) =>
    (await ctx.visit('q', { message: 'M', url: URL_OF_A_PAGE })) ?? 'opened'
  const sample: Handler = (ctx) => ctx.sample('q', { messages: [], maxTokens: 5 })
  const roots: Handler = (ctx) => ctx.roots('q')
  const message = { role: 'assistant', content: { type: 'text', text: 'Hi' } }
  /** The answer to the question `q` that a handler goes on to record before it asks another. */
  const recorded = async (handler: Handler, answer: unknown): Promise<unknown> => {
    const flow = asking(async (ctx) => {
      await handler(ctx)
      await ctx.ask('last', textQuestion())
    })
    await flow.round()
    expect(askedKeys(await flow.round({ q: answer }))).toEqual(['last'])
    return (flow.journal.entries[0] as { answer: unknown }).answer
  }

  it('R7 records what the handler sees, and nothing that a client adds', async () => {
    expect(await recorded(visit, { action: 'accept', _meta: { x: 1 }, content: {} })).toEqual({
      action: 'accept',
    })
    expect(await recorded(roots, { roots: [{ uri: 'file:///a' }], _meta: {} })).toEqual({
      roots: [{ uri: 'file:///a' }],
    })
    expect(await recorded(sample, message)).toEqual(message)
  })

  it.each<[string, Handler, unknown[]]>([
    ['a page', visit, [{ action: 'expired' }, {}, null, 'accept', [], { content: {} }]],
    [
      'a completion',
      sample,
      [
        null,
        'text',
        {},
        { role: 'assistant' },
        { ...message, content: null },
        { ...message, content: 'text' },
        { ...message, role: 1 },
        Object.assign([], message),
      ],
    ],
    [
      'roots',
      roots,
      [
        null,
        [],
        {},
        { roots: {} },
        { roots: [null] },
        { roots: [{ uri: 'file:///a' }, {}] },
        { roots: [{ uri: 1 }] },
      ],
    ],
  ])('B17 asks for %s again if the answer has another shape', async (_what, handler, answers) => {
    for (const answer of answers) {
      const flow = asking(handler)
      await flow.round()
      expect(askedKeys(await flow.round({ q: answer }))).toEqual(['q'])
      expect(flow.journal).toMatchObject({
        entries: [],
        reasks: { q: { misfits: 1, problem: expect.stringContaining('The response must ') } },
      })
    }
  })

  it.each(['nonsense', 'ftp://localhost/', 'http://example.com/', 'file:///etc/passwd'])(
    'T4 opens no page but https, and http on loopback: %s',
    async (url) => {
      expect(() => urlQuestion({ message: 'M', url })).toThrow('ctx.visit accepts only https URLs')
      expect(urlQuestion({ message: 'M', url: 'http://localhost:1/' }).kind).toBe('url')
    },
  )

  it.each(['https://me@example.com/', 'https://:secret@example.com/'])(
    'T4 opens no page with credentials: %s',
    (url) => {
      expect(() => urlQuestion({ message: 'M', url })).toThrow(
        'does not accept a URL that contains a user name',
      )
    },
  )
})

describe('what was wrong with an answer', () => {
  it('B17 is said in front of the question, in sentences', async () => {
    const fussy = z.object({
      value: z.string().refine((value) => value !== 'x', { error: 'v. 2 is needed' }),
      other: z.int(),
    })
    const flow = asking((ctx) => ctx.ask('q', { message: 'M?', schema: fussy }))
    await flow.round()
    expect(messageOf(await flow.round({ q: accept({ value: 7 as never, other: 'y' }) }))).toMatch(
      /^Value must be a text\. Other must be .*\. M\?$/,
    )
    expect(messageOf(await flow.round({ q: accept({ value: 'x', other: 1 }) }))).toMatch(
      /v\. 2 is needed\. M\?$/,
    )
  })

  it('B17 is not that the form came back empty, if it was no form at all', async () => {
    const flow = asking((ctx) => ctx.ask('q', textQuestion('M?')))
    await flow.round()
    for (let i = 0; i < 3; i++)
      expect(messageOf(await flow.round({ q: { action: 'maybe' } }))).toBe(
        'The response must accept, decline or cancel. M?',
      )
    expect(refusal(await flow.round({ q: { action: 'maybe' } }))).toBe('INPUT_REJECTED')
  })

  it.each([[undefined], [null], [{}]])(
    'B17 is that the client cannot show the form if it is empty twice: %j',
    async (content) => {
      const flow = asking((ctx) => ctx.ask('q', textQuestion('M?')))
      await flow.round()
      expect(messageOf(await flow.round({ q: { action: 'accept', content } }))).toMatch(
        /^The form came back empty\. .* M\?$/,
      )
      expect(refusal(await flow.round({ q: { action: 'accept', content } }))).toBe('INPUT_REJECTED')
    },
  )

  it('R9 ends the call without fixing a time limit for the question', async () => {
    const kept: string[] = []
    const persistDeadline = async (key: string) => void kept.push(key)
    const form = textQuestion()
    const limited: Handler = (ctx) => ctx.ask('q', { ...form, within: '1 min' })
    const reworded = asking((ctx) => ctx.ask('q', textQuestion('Before?')), { limits: { maxReasks: 0 } })
    await reworded.round()
    expect(refusal(await reworded.round({}, { handler: limited, persistDeadline }))).toBe(
      'REPLAY_QUESTION_CHANGES',
    )
    const unasked = asking(limited, { limits: { maxReasks: 0 } })
    expect(refusal(await unasked.round({ q: accept({ value: 7 as never }) }, { persistDeadline }))).toBe(
      'INPUT_REJECTED',
    )
    const empty = asking((ctx) => ctx.ask('q', form))
    await empty.round()
    await empty.round({ q: { action: 'accept' } })
    expect(
      refusal(await empty.round({ q: { action: 'accept' } }, { handler: limited, persistDeadline })),
    ).toBe('INPUT_REJECTED')
    expect(kept).toEqual([])
  })

  it('R11 is unknown if the schema throws: the question is asked again, whether or not anybody is told', async () => {
    const broken = z.object({
      value: z.string().refine(() => {
        throw new Error('mine')
      }),
    })
    const flow = asking((ctx) => ctx.ask('q', { message: 'M?', schema: broken }))
    await flow.round()
    const report = await flow.round({ q: accept({ value: '' }) }, { input: { onAsideError: undefined } })
    expect(messageOf(report)).toBe('The answer could not be checked. M?')
  })
})

describe('an answer that is still being read', () => {
  const slowly = (gate: Promise<unknown>) => ({
    message: 'M?',
    schema: z.object({ value: z.string().refine(() => gate.then(() => true)) }),
  })

  it('is not recorded after the handler has failed', async () => {
    const gate = deferredPromise()
    const flow = asking((ctx) =>
      Promise.all([
        ctx.ask('q', slowly(gate.promise)),
        ctx.checkpoint().then(() => {
          throw new Error('mine')
        }),
      ]),
    )
    await flow.round(undefined, { handler: (ctx) => ctx.ask('q', slowly(gate.promise)) })
    const running = flow.round({ q: accept({ value: 'x' }) })
    for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
    gate.resolve()
    const { ending, journal } = await running
    expect(ending).toMatchObject({ kind: 'threw', error: { message: 'mine' } })
    expect(journal.entries).toEqual([])
  })

  it('ends the call if it cannot be recorded', async () => {
    const error = new Error('no memory')
    const trace: ReplayInput['trace'] = {
      called: () => {},
      keyed: () => {},
      recorded() {
        throw error
      },
    }
    const flow = asking((ctx) => ctx.ask('q', textQuestion()))
    await flow.round()
    const report = await flow.round({ q: accept({ value: '' }) }, { input: { trace } })
    expect(report.ending).toMatchObject({ kind: 'refused', error: { code: 'SERVER_INTERNAL', cause: error } })
  })
})

describe('a client that cannot be asked', () => {
  const { request } = formQuestion(textQuestion('M?'))
  const missing = { elicitation: { form: {} } }

  it('reads the capabilities that it lacks, for machines too', () => {
    const error = unaskable([
      { request, missing },
      { request: { method: 'roots/list' }, missing: { roots: {} } },
    ])
    expect(error.data).toEqual({ requiredCapabilities: { elicitation: { form: {} }, roots: {} } })
    expect(error.sentence).toBe(
      'This client cannot be asked: it lacks the capability elicitation.form, roots. ' +
        'The tool asks the user: "M?" The answer has value: a text. The tool needs to know the roots of the client. ' +
        'No argument can stand in for the answer. Do not call it again here; tell the user that this host cannot do what the tool needs.',
    )
  })

  it.each<[readonly string[], string]>([
    [['value'], 'the argument "value".'],
    [['value', 'unit'], 'the arguments "value", "unit".'],
  ])('reads the arguments that make the question unnecessary: %j', (instead, advice) => {
    expect(unaskable([{ request, instead, missing }]).sentence).toContain(
      `Ask the user, then call again with ${advice}`,
    )
  })
})
