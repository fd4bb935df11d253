import { describe, expect, it } from 'vitest'
import { type Handler, replayFlow, textQuestion } from '../../../../test/support/replay-flow.ts'

const question = textQuestion()
const page = { message: 'Open it', url: 'https://example.com/' }

async function errorOf(handler: Handler): Promise<string> {
  const { ending } = await replayFlow(handler, { anchored: true }).round()
  return ending.kind === 'threw' ? String(ending.error) : ending.kind
}

/** Calls as they are in JavaScript, or with a type that was cast away. */
const WITHOUT_NAME: Record<string, Handler> = {
  "ctx.ask('name', { message, schema })": (ctx) => ctx.ask(question as never, undefined as never),
  "ctx.elicit('name', { message, schema })": (ctx) => ctx.elicit(question as never, undefined as never),
  "ctx.offer('name', { message, schema })": (ctx) => ctx.offer(question as never, undefined as never),
  "ctx.confirm('name', 'Really?')": (ctx) => ctx.confirm('Delete all?', undefined as never),
  "ctx.visit('name', { message, url })": (ctx) => ctx.visit(page as never, undefined as never),
  "ctx.sample('name', { messages, maxTokens })": (ctx) =>
    ctx.sample({ messages: [], maxTokens: 5 } as never, undefined as never),
  "ctx.step('name', () => result)": (ctx) => ctx.step((() => 1) as never, undefined as never),
  "ctx.effect('name', ({ key }) => result)": (ctx) => ctx.effect((() => 1) as never, undefined as never),
}

describe('an operation that is called in the wrong way', () => {
  it.each(Object.entries(WITHOUT_NAME))(
    'says what to write if its name is missing: %s',
    async (usage, call) => {
      const error = await errorOf(call)
      expect(error).toMatch(/^TypeError: ctx\.\w+ takes a name /)
      expect(error).toContain(usage)
    },
  )

  it('says what to write if only its name is there', async () => {
    expect(await errorOf((ctx) => ctx.ask('city', undefined as never))).toContain(
      `ctx.ask takes a name and an object: ctx.ask('name', { message, schema }); got "city" and undefined`,
    )
    expect(await errorOf((ctx) => ctx.step('load', null as never))).toContain('"load" and null')
  })

  it.each<[string, Handler]>([
    ['ask', (ctx) => ctx.ask('q', { ...question, whitin: 5 } as never)],
    ['elicit', (ctx) => ctx.elicit('q', { ...question, whitin: 5 } as never)],
    ['offer', (ctx) => ctx.offer('q', { ...question, whitin: 5 } as never)],
    ['visit', (ctx) => ctx.visit('q', { ...page, whitin: 5 } as never)],
    ['confirm', (ctx) => ctx.confirm('q', 'Sure?', { whitin: 5 } as never)],
  ])('names a misspelt option of ctx.%s and the nearest one', async (_name, call) => {
    expect(await errorOf(call)).toContain('has no option "whitin". Did you mean "within"?')
  })
})
