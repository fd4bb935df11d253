/**
 * Code that authors may write, and code that the compiler refuses. `npm run types` checks this file; a line under `@ts-expect-error`
 * that compiles is an error. Nothing here runs.
 */

import { toStandardJsonSchema } from '@valibot/to-json-schema'
import { type } from 'arktype'
import {
  type Completer,
  type Context,
  createServer,
  type EffectInfo,
  type Infer,
  type Jsonable,
  type ListenOptions,
  type PromptHandler,
  type Store,
  type TaskOptions,
  type TemplateHandler,
  type ToolHandler,
} from 'rondo'
import { createRondo } from 'rondo/sdk'
import * as v from 'valibot'
import { z } from 'zod'

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Same<A, B>): void => {}

interface Booking {
  id: string
  seats: { row: number; free?: boolean }[]
}
const booking: Booking = { id: 'b1', seats: [{ row: 1 }] }
const server = createServer({ name: 'types', version: '1.0.0' })

export function toolArguments(): void {
  server.tool('none', {}, (args) => {
    same<typeof args, Record<string, unknown>>(true)
  })
  server.tool('zod', { input: z.object({ id: z.int() }) }, (args) => {
    same<typeof args, { id: number }>(true)
  })
  server.tool('valibot', { input: toStandardJsonSchema(v.object({ id: v.number() })) }, (args) => {
    same<typeof args, { id: number }>(true)
  })
  server.tool('arktype', { input: type({ id: 'number' }) }, (args) => {
    same<typeof args, { id: number }>(true)
  })
  server.tool('plain', { input: { type: 'object', properties: { id: { type: 'integer' } } } }, (args) => {
    same<typeof args, Record<string, unknown>>(true)
  })
  // @ts-expect-error a tool without input has no known arguments
  server.tool('none', {}, ({ id }) => id.toUpperCase())
}

export function toolResults(): void {
  server.tool('text', {}, () => 'done')
  server.tool('nothing', {}, () => {})
  server.tool('nothing later', {}, async () => {})
  server.tool('content', {}, () => [{ type: 'text', text: 'done' }])
  server.tool('result', {}, async () => ({ content: [{ type: 'text', text: 'no' }], isError: true }))
  server.tool('structured', {}, () => ({ total: 5 }))
  server.tool('interface', {}, async () => booking)
  server.tool('list', {}, () => [booking, booking])
  server.tool('output', { output: z.object({ total: z.number() }) }, () => ({ total: 5 }))
  // @ts-expect-error a number is not a result
  server.tool('number', {}, () => 5)
  // @ts-expect-error a boolean is not a result, in a promise either
  server.tool('boolean', {}, async () => true)
  // @ts-expect-error a symbol is not a result
  server.tool('symbol', {}, () => Symbol('done'))
  // @ts-expect-error a function is not a result
  server.tool('function', {}, () => () => 'done')
  // @ts-expect-error null is not a result
  server.tool('null', {}, () => null)
  // @ts-expect-error the output schema has a number
  server.tool('output', { output: z.object({ total: z.number() }) }, () => ({ total: 'five' }))
  // @ts-expect-error the manual form goes through inputRequired()
  server.tool('literal', {}, () => ({ resultType: 'input_required', requestState: 'x' }))
}

export async function steps(ctx: Context): Promise<void> {
  same<Awaited<ReturnType<typeof number>>, number>(true)
  async function number() {
    return ctx.step('number', async () => 5 as number)
  }
  const kept: Booking = await ctx.step('interface', () => booking)
  const tuple: [string, number] = await ctx.step('tuple', (): [string, number] => [kept.id, 1])
  const maybe: Booking | undefined = await ctx.step('maybe', async () => (tuple[1] ? booking : undefined))
  const explicit: string | null = await ctx.step<string | null>('explicit', async () => maybe?.id ?? null)
  const parsed = await ctx.step('any', () => JSON.parse(explicit ?? ''))
  const record: Record<string, unknown> = await ctx.step(
    'record',
    async () => ({ parsed }) as Record<string, unknown>,
  )
  const answer: unknown = await ctx.step('unknown', async () => record.parsed)
  await ctx.effect('nothing', async ({ key }) => void key)
  await ctx.effect('nothing', () => {}, { once: true })
  await ctx.effect('deep', () => ({ list: [{ answer: String(answer), at: [1, null] as const }] }))
  // @ts-expect-error a Date becomes a string
  await ctx.step('date', () => new Date())
  // @ts-expect-error a Date inside of an object too
  await ctx.effect('date', async () => ({ at: new Date() }))
  // @ts-expect-error a Map becomes an empty object
  await ctx.step('map', async () => new Map([['a', 1]]))
  // @ts-expect-error JSON has no bigint
  await ctx.effect('bigint', () => 5n)
  // @ts-expect-error JSON has no symbol
  await ctx.step('symbol', () => Symbol('s'))
  // @ts-expect-error a function is lost
  await ctx.step('function', () => ({ run: () => 1 }))
  // @ts-expect-error bytes become an object of numbers
  await ctx.step('bytes', async () => new Uint8Array(4))
}

export function templates(): void {
  server.template('notes://{owner}/{name}', { name: 'notes' }, (params) => {
    const owner: string = params.owner
    return owner + params.name
  })
  server.template('find://{+path}{?q,page}{#part}', { name: 'find' }, ({ path, q, page, part }) => {
    same<typeof q, string | undefined>(true)
    const text: string = path
    return text + (page ?? '') + (part ?? '')
  })
  server.template(
    'list://{a,b}{/c}',
    { name: 'list', complete: { a: () => ['x'], c: () => [] } },
    ({ a, b }) => {
      same<typeof b, string | undefined>(true)
      return a
    },
  )
  const text: string = 'notes://{any}'
  server.template(text, { name: 'any', complete: { whatever: () => [] } }, (params) =>
    String(params.whatever),
  )
  // @ts-expect-error the template has no such variable
  server.template('notes://{owner}', { name: 'notes' }, ({ name }) => name)
  // @ts-expect-error a variable of the query may be missing
  server.template('notes://all{?q}', { name: 'notes' }, ({ q }) => q.trim())
  // @ts-expect-error the template has no such variable to complete
  server.template('notes://{owner}', { name: 'notes', complete: { name: () => [] } }, () => '')
}

export function prompts(): void {
  const suggest: Completer = (value) => [value]
  const input = z.object({ topic: z.string(), tone: z.string().optional() })
  server.prompt('zod', { input, complete: { topic: suggest, tone: suggest } }, ({ topic }) => topic)
  server.prompt(
    'arktype',
    { input: type({ topic: 'string' }), complete: { topic: suggest } },
    ({ topic }) => topic,
  )
  server.prompt(
    'plain',
    { input: { type: 'object' }, complete: { topic: suggest } },
    ({ topic }) => `${topic}`,
  )
  server.prompt('none', {}, (args) => {
    same<typeof args, Record<string, string>>(true)
    return 'text'
  })
  // @ts-expect-error the schema has no such argument
  server.prompt('zod', { input, complete: { subject: suggest } }, ({ topic }) => topic)
}

export function tasks(): void {
  const rondo = createRondo({ audience: 'types' })
  for (const task of ['never', 'auto', 'always'] as const) {
    server.tool('task', { task }, () => 'done')
    rondo.tool(() => ({ content: [] }), { task })
  }
  // @ts-expect-error the modes are never, auto and always
  server.tool('task', { task: 'background' }, () => 'done')
  // @ts-expect-error the modes are the same in an official server
  rondo.tool(() => ({ content: [] }), { task: 'background' })
}

/** `if (!ctx.confirm(…))` compiles in every version of TypeScript: the run refuses what follows (N1). */
export async function confirmations(ctx: Context): Promise<string> {
  // @ts-expect-error a confirmation without await is always true
  if (ctx.confirm('a', 'Sure?')) return 'yes'
  // @ts-expect-error a confirmation without await is no boolean
  if (ctx.confirm('b', 'Sure?') === false) return 'no'
  const ok = ctx.confirm('c', 'Sure?')
  // @ts-expect-error a confirmation without await is always true
  return ok ? 'yes' : 'no'
}

/** Types for code around a server. */
export interface Named {
  handler: ToolHandler
  typed: ToolHandler<typeof Input>
  prompt: PromptHandler
  template: TemplateHandler<'notes://{name}'>
  listen: ListenOptions
  tasks: TaskOptions
  effect: EffectInfo
  store: Store
  value: Infer<typeof Input>
  json: Jsonable<Booking>
}
const Input = z.object({ id: z.int() })
export const named: Pick<Named, 'value'> = { value: { id: 1 } }
