/** A handler may change an answer that it received: that changes neither the journal (R2) nor the keys of its effects (R7). */

import { expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  type Handler,
  replayFlow,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import type { Context } from '../tool/context.ts'
import type { ReplayInput } from './input.ts'

const completion = { role: 'assistant', content: { type: 'text', text: 'x' } }

it.each<[string, (ctx: Context) => Promise<unknown>, object]>([
  ['a form', (ctx) => ctx.ask('q', textQuestion()), accept({ value: 'x' })],
  [
    'an outcome',
    async (ctx) => ((await ctx.elicit('q', textQuestion())) as { content: object }).content,
    accept({ value: 'x' }),
  ],
  ['a completion', (ctx) => ctx.sample('q', { messages: [], maxTokens: 1 }), completion],
  ['roots', (ctx) => ctx.roots('q'), { roots: [{ uri: 'file:///a' }] }],
])(
  'R2 an answer is recorded as it came, whatever the handler does to %s',
  async (_what, question, answer) => {
    const seen: string[] = []
    const flow = replayFlow(async (ctx) => {
      const received = (await question(ctx)) as object
      seen.push(JSON.stringify(received))
      Object.assign(received, { 0: 'changed', value: 'changed', role: 'changed' })
      await ctx.ask('next', textQuestion())
    })
    await flow.round()
    for (let round = 0; round < 2; round++) {
      expect(askedKeys(await flow.round({ q: structuredClone(answer) }))).toEqual(['next'])
      expect(flow.journal.entries).toMatchObject([{ key: 'q', answer }])
    }
    expect(seen[1]).toBe(seen[0])
  },
)

it('R2 an answer to an offer is recorded as it came, whatever the handler does to it', async () => {
  const hooks: ReplayInput['hooks'] = { open: async () => 'id', close: async () => {} }
  const handler: Handler = async (ctx) => {
    const outcome = await ctx.offer('q', textQuestion())
    if (outcome.action === 'accept') (outcome.content as { value: string }).value = 'changed'
    await ctx.ask('next', textQuestion())
  }
  const flow = replayFlow(handler, { anchored: true })
  const asked = replayFlow((ctx) => ctx.ask('q', textQuestion()))
  await asked.round()
  flow.asked = asked.asked
  flow.journal = asked.journal
  const answer = accept({ value: 'x' })
  expect(askedKeys(await flow.round({ q: answer }, { input: { hooks } }))).toEqual(['next'])
  expect(flow.journal.entries).toMatchObject([{ key: 'q', answer }])
})

it('R7 the key of an effect does not depend on what the handler does to the answers of the manual form', async () => {
  const keys: string[] = []
  const handler: Handler = async (ctx) => {
    for (const name of ['one', 'two']) {
      const given = ctx.inputResponses as unknown as { readonly qty: ReturnType<typeof accept> }
      await ctx.effect(name, ({ key }) => void keys.push(`${name} ${key}`))
      given.qty.content.value = 'changed'
    }
    await ctx.ask('next', textQuestion())
  }
  const answers = { qty: accept({ value: '1' }) }
  const input: Partial<ReplayInput> = { inputResponses: () => answers as never }
  const flow = replayFlow(handler, { anchored: true })
  await flow.round(undefined, { input })
  // A crash after the first effect: the second one runs again.
  flow.journal = { ...flow.journal, entries: flow.journal.entries.slice(0, 1) }
  await flow.round(undefined, { input })
  expect(keys).toHaveLength(3)
  expect(keys[2]).toBe(keys[1])
})
