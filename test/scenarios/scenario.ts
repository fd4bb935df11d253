/**
 * One list of flows that every carrier must run alike (R10): the same result, the same effects under the same keys.
 *
 * A scenario declares its handler on a given server and says what the user answers. It does not know how questions
 * travel.
 */

import { Fatal, inputRequired, type Server } from 'rondo'
import { cancel, decline, type Script } from 'rondo/testing'
import { z } from 'zod'

export interface World {
  /** The effects that ran, in order: name and key. */
  readonly effects: { name: string; key: string }[]
  /** Steps that really ran. */
  readonly steps: string[]
}

export interface Scenario {
  readonly name: string
  readonly method: 'tools/call' | 'prompts/get' | 'resources/read'
  readonly target: string
  readonly args?: Readonly<Record<string, unknown>>
  readonly script: Script
  /** The text of the final result. */
  readonly text: string
  readonly isError?: true
  /** Uses Rondo's manual form; on an official server the official package has its own. */
  readonly manual?: true
  /** Names of the effects that run. */
  readonly effects: readonly string[]
  declare(server: Server, world: World): void
  /** The scenario without the parts that only a task can do: the reference for effect keys. */
  rounds?(server: Server, world: World): void
}

export function createWorld(): World {
  return { effects: [], steps: [] }
}

const value = z.object({ value: z.string() })

function touch(world: World, name: string): (info: { key: string }) => string {
  return ({ key }) => {
    world.effects.push({ name, key })
    return `${name} done`
  }
}

/** The parts that only a task can do. */
export const taskScenarios: readonly Scenario[] = [
  {
    name: 'an event that is there before the handler waits for it, and a second that is told so',
    method: 'tools/call',
    target: 'before',
    script: { name: { value: 'Ada' } },
    text: 'accepted duplicate paid Ada ship done',
    effects: ['ship'],
    declare: (server, world) =>
      server.tool('before', {}, async (_args, ctx) => {
        const hook = await ctx.hook('paid', { schema: z.object({ by: z.string() }) })
        const told = await ctx.step('report', async () => {
          const first = await server.deliver(hook.id, { by: 'paid' })
          return `${first.kind} ${(await server.deliver(hook.id, { by: 'again' })).kind}`
        })
        const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
        const { by } = await hook.received()
        return `${told} ${by} ${name} ${await ctx.effect('ship', touch(world, 'ship'))}`
      }),
    rounds: (server, world) =>
      server.tool('before', {}, async (_args, ctx) => {
        await ctx.ask('name', { message: 'Name?', schema: value })
        return ctx.effect('ship', touch(world, 'ship'))
      }),
  },
  {
    name: 'an event that does not fit, then one that does, while the handler waits beside a step',
    method: 'tools/call',
    target: 'during',
    script: {},
    text: 'rejected accepted 7 ship done',
    effects: ['ship'],
    declare: (server, world) =>
      server.tool('during', {}, async (_args, ctx) => {
        const hook = await ctx.hook('paid', { schema: z.object({ cents: z.int() }), within: '1 hour' })
        const [told, { cents }] = await Promise.all([
          ctx.step('report', async () => {
            const bad = await server.deliver(hook.id, { cents: 'many' })
            return `${bad.kind} ${(await server.deliver(hook.id, { cents: 7 })).kind}`
          }),
          hook.received(),
        ])
        return `${told} ${cents} ${await ctx.effect('ship', touch(world, 'ship'))}`
      }),
    rounds: (server, world) =>
      server.tool('during', {}, (_args, ctx) => ctx.effect('ship', touch(world, 'ship'))),
  },
  {
    name: 'a hook whose time is up',
    method: 'tools/call',
    target: 'silence',
    script: {},
    text: 'EventExpired closed remind done',
    effects: ['remind'],
    declare: (server, world) =>
      server.tool('silence', {}, async (_args, ctx) => {
        const hook = await ctx.hook('paid', { within: 5 })
        const error = await hook.received().catch(({ name }: Error) => name)
        const late = await ctx.step('late', async () => (await server.deliver(hook.id, 1)).kind)
        return `${error} ${late} ${await ctx.effect('remind', touch(world, 'remind'))}`
      }),
    rounds: (server, world) =>
      server.tool('silence', {}, (_args, ctx) => ctx.effect('remind', touch(world, 'remind'))),
  },
]

export const scenarios: readonly Scenario[] = [
  {
    name: 'an offer beside a step, awaited, then an effect',
    method: 'tools/call',
    target: 'offer',
    script: { tip: { value: '2' } },
    text: 'nothing yet, work, accept, charge done',
    effects: ['charge'],
    declare: (server, world) =>
      server.tool('offer', {}, async (_args, ctx) => {
        const tip = ctx.offer('tip', { message: 'A tip?', schema: value })
        const early = tip.peek() ? 'a tip' : 'nothing yet'
        const step = await ctx.step('work', () => 'work')
        const { action } = await tip
        return `${early}, ${step}, ${action}, ${await ctx.effect('charge', touch(world, 'charge'))}`
      }),
  },
  {
    name: 'plain',
    method: 'tools/call',
    target: 'plain',
    args: { n: 2 },
    script: {},
    text: '4',
    effects: [],
    declare: (server) =>
      server.tool('plain', { input: z.object({ n: z.number() }) }, ({ n }) => String(n * 2)),
  },
  {
    name: 'one question',
    method: 'tools/call',
    target: 'ask',
    script: { name: { value: 'Ada' } },
    text: 'Hello Ada',
    effects: [],
    declare: (server) =>
      server.tool('ask', {}, async (_args, ctx) => {
        const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
        return `Hello ${name}`
      }),
  },
  {
    name: 'three rounds',
    method: 'tools/call',
    target: 'three',
    script: { a: { value: '1' }, b: { value: '2' }, c: { value: '3' } },
    text: '1 2 3',
    effects: [],
    declare: (server) =>
      server.tool('three', {}, async (_args, ctx) => {
        const parts = []
        for (const key of ['a', 'b', 'c'])
          parts.push((await ctx.ask(key, { message: key, schema: value })).value)
        return parts.join(' ')
      }),
  },
  {
    name: 'parallel questions beside a step',
    method: 'tools/call',
    target: 'parallel',
    script: { left: { value: 'L' }, right: { value: 'R' } },
    text: 'L step R',
    effects: [],
    declare: (server, world) =>
      server.tool('parallel', {}, async (_args, ctx) => {
        const [left, step, right] = await Promise.all([
          ctx.ask('left', { message: 'Left?', schema: value }),
          ctx.step('middle', () => {
            world.steps.push('middle')
            return 'step'
          }),
          ctx.ask('right', { message: 'Right?', schema: value }),
        ])
        return `${left.value} ${step} ${right.value}`
      }),
  },
  {
    name: 'an effect before a question and one after',
    method: 'tools/call',
    target: 'effects',
    script: { sure: { confirm: true } },
    text: 'reserve done, charge done',
    effects: ['reserve', 'charge'],
    declare: (server, world) =>
      server.tool('effects', {}, async (_args, ctx) => {
        const first = await ctx.effect('reserve', touch(world, 'reserve'))
        if (!(await ctx.confirm('sure', 'Charge the card?'))) return 'not charged'
        return `${first}, ${await ctx.effect('charge', touch(world, 'charge'))}`
      }),
  },
  {
    name: 'decline',
    method: 'tools/call',
    target: 'decline',
    script: { name: decline },
    text: 'The user declined to answer "name". Nothing more was done.',
    isError: true,
    effects: [],
    declare: (server, world) =>
      server.tool('decline', {}, async (_args, ctx) => {
        await ctx.ask('name', { message: 'Name?', schema: value })
        return ctx.effect('never', touch(world, 'never'))
      }),
  },
  {
    name: 'cancel, caught by the author',
    method: 'tools/call',
    target: 'cancel',
    script: { name: cancel },
    text: 'cancel, then save done',
    effects: ['save'],
    declare: (server, world) =>
      server.tool('cancel', {}, async (_args, ctx) => {
        const { action } = await ctx.elicit('name', { message: 'Name?', schema: value })
        return `${action}, then ${await ctx.effect('save', touch(world, 'save'))}`
      }),
  },
  {
    name: 'a step that fails, caught and replayed',
    method: 'tools/call',
    target: 'fails',
    script: { go: { confirm: true } },
    text: 'no disk true',
    effects: [],
    declare: (server, world) =>
      server.tool('fails', {}, async (_args, ctx) => {
        const problem = await ctx
          .step('write', () => {
            world.steps.push('write')
            throw new Error('no disk')
          })
          .catch((error: Error) => error.message)
        return `${problem} ${await ctx.confirm('go', 'Go on without?')}`
      }),
  },
  {
    name: 'a step and an effect that fail at first and are retried around a question',
    method: 'tools/call',
    target: 'retried',
    script: { go: { confirm: true } },
    text: 'price at 2, true, charge done, Fatal',
    effects: ['charge', 'refund'],
    declare: (server, world) =>
      server.tool('retried', {}, async (_args, ctx) => {
        const retry = { times: 2, delay: 2, factor: 1 }
        const failUntil = (attempt: number, succeeds: number): void => {
          if (attempt < succeeds) throw new Error(`attempt ${attempt}`)
        }
        const price = await ctx.step(
          'price',
          ({ attempt }) => {
            failUntil(attempt, 2)
            return `price at ${attempt}`
          },
          { retry, timeout: '1 min' },
        )
        const sure = await ctx.confirm('go', 'Charge the card?')
        const charged = await ctx.effect(
          'charge',
          (info) => {
            failUntil(info.attempt, 3)
            return touch(world, 'charge')(info)
          },
          { retry },
        )
        const problem = await ctx
          .effect(
            'refund',
            (info) => {
              touch(world, 'refund')(info)
              throw new Fatal('The account is gone')
            },
            { retry },
          )
          .catch(({ name }: Error) => name)
        return `${price}, ${sure}, ${charged}, ${problem}`
      }),
  },
  {
    name: 'sampling and roots',
    method: 'tools/call',
    target: 'model',
    script: {
      capital: { role: 'assistant', content: { type: 'text', text: 'Paris' }, model: 'm' },
      roots: { roots: [{ uri: 'file:///home' }] },
    },
    text: 'Paris file:///home',
    effects: [],
    declare: (server) =>
      server.tool('model', {}, async (_args, ctx) => {
        const message = { role: 'user', content: { type: 'text', text: 'Capital of France?' } }
        const [answer, roots] = await Promise.all([
          ctx.sample('capital', { messages: [message], maxTokens: 10 }),
          ctx.roots(),
        ])
        return `${(answer.content as { text: string }).text} ${roots[0]?.uri}`
      }),
  },
  {
    name: 'what is drawn stays',
    method: 'tools/call',
    target: 'drawn',
    script: { go: { confirm: true } },
    text: 'the same',
    effects: [],
    declare: (server) =>
      server.tool('drawn', {}, async (_args, ctx) => {
        const drawn = [ctx.now(), ctx.uuid(), ctx.random()].join()
        const before = await ctx.step('drawn', () => drawn)
        await ctx.confirm('go', 'Go on?')
        return before === drawn ? 'the same' : 'changed'
      }),
  },
  {
    name: 'the manual form, then an effect',
    method: 'tools/call',
    target: 'manual',
    script: { sure: { confirm: true } },
    text: 'kept: save done',
    manual: true,
    effects: ['save'],
    declare: (server, world) =>
      server.tool('manual', {}, async (_args, ctx) => {
        const answer = ctx.inputResponses?.sure
        if (ctx.requestState !== 'kept' || answer === undefined) {
          const properties = { confirm: { type: 'boolean' } }
          const requestedSchema = { type: 'object', properties, required: ['confirm'] }
          const params = { mode: 'form', message: 'Sure?', requestedSchema } as const
          const inputRequests = { sure: { method: 'elicitation/create', params } } as const
          return inputRequired({ inputRequests, requestState: 'kept' })
        }
        return `${ctx.requestState}: ${await ctx.effect('save', touch(world, 'save'))}`
      }),
  },
  {
    name: 'a short sleep between effects, and a question answered in time',
    method: 'tools/call',
    target: 'nap',
    script: { name: { value: 'Ada' } },
    text: 'reserve done Ada charge done',
    effects: ['reserve', 'charge'],
    declare: (server, world) =>
      server.tool('nap', {}, async (_args, ctx) => {
        const first = await ctx.effect('reserve', touch(world, 'reserve'))
        await ctx.sleep('nap', 5)
        const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value, within: '1 hour' })
        await ctx.sleepUntil('past', new Date(0))
        return `${first} ${name} ${await ctx.effect('charge', touch(world, 'charge'))}`
      }),
  },
  {
    name: 'a question whose time is up beside one that is answered, then an effect',
    method: 'tools/call',
    target: 'expired',
    script: { name: { value: 'Ada' } },
    text: 'expired false Ada save done',
    effects: ['save'],
    declare: (server, world) =>
      server.tool('expired', {}, async (_args, ctx) => {
        const [{ action }, sure, { value: name }] = await Promise.all([
          ctx.elicit('gone', { message: 'Too late?', schema: value, within: 0 }),
          ctx.confirm('sure', 'Too late as well?', { within: 0 }),
          ctx.ask('name', { message: 'Name?', schema: value }),
        ])
        return `${action} ${sure} ${name} ${await ctx.effect('save', touch(world, 'save'))}`
      }),
  },
  {
    name: 'a question whose time is up, not caught by the author',
    method: 'tools/call',
    target: 'uncaught',
    script: {},
    text: 'The question "name" was not answered in time. Nothing more was done.',
    isError: true,
    effects: [],
    declare: (server, world) =>
      server.tool('uncaught', {}, async (_args, ctx) => {
        await ctx.ask('name', { message: 'Name?', schema: value, within: 0 })
        return ctx.effect('never', touch(world, 'never'))
      }),
  },
  {
    name: 'a prompt that asks',
    method: 'prompts/get',
    target: 'summary',
    script: { tone: { value: 'terse' } },
    text: 'Summarise, terse',
    effects: [],
    declare: (server) =>
      server.prompt('summary', {}, async (_args, ctx) => {
        const { value: tone } = await ctx.ask('tone', { message: 'Tone?', schema: value })
        return `Summarise, ${tone}`
      }),
  },
  {
    name: 'a resource that asks',
    method: 'resources/read',
    target: 'notes://today',
    script: { read: { confirm: true } },
    text: 'Buy milk',
    effects: [],
    declare: (server) =>
      server.resource('notes://today', { name: 'Today' }, async (_uri, ctx) =>
        (await ctx.confirm('read', 'Read the notes?')) ? 'Buy milk' : 'private',
      ),
  },
]
