/**
 * The programs of README and guide, as they stand and with their schemas created in the handler, and a tool that asks as many
 * questions as it is told to.
 */

import type { Server } from 'rondo'
import { z } from 'zod'
import { type WorkItem, workItems } from '../../examples/08-custom-rules.ts'
import { SECRET } from '../work.ts'
import { createServer } from './build.ts'
import type { Started, StartServer } from './start.ts'

const OPTIONS = { keys: `bench:${SECRET}`, log: 'off' } as const

async function listen(server: Server): Promise<Started> {
  const { url } = await server.listen({ port: 0, signals: false })
  return { url: new URL(url), close: server.close }
}

/** README's program: it listens by itself and prints where. */
export const startReadme: StartServer = async () => {
  process.env.PORT = '0'
  process.env.RONDO_KEYS = OPTIONS.keys
  const { log } = console
  const printed: string[] = []
  console.log = (line: string) => void printed.push(line)
  try {
    await import('../../examples/01-ask.ts')
  } finally {
    console.log = log
  }
  return { url: new URL(printed.join().replace('Serving ', '')), close: async () => {} }
}

/** The README's program, with its schema in the handler. */
export const startReadmeInline: StartServer = () => {
  const bugs = new Map<number, string>()
  const server = createServer({ name: 'tracker', version: '1.0.0', keys: OPTIONS.keys })
  server.tool(
    'resolve_bug',
    { description: 'Resolve a bug', input: z.object({ id: z.int() }) },
    async ({ id }, ctx) => {
      const { resolution } = await ctx.ask('resolution', {
        message: `How was bug #${id} resolved?`,
        schema: z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) }),
      })
      await ctx.effect('save', () => void bugs.set(id, resolution))
      return `Bug #${id} resolved as ${resolution}.`
    },
  )
  return listen(server)
}

/** The program that the guide's clients call. */
export const startRules: StartServer = () => listen(workItems(new Map(), OPTIONS))

/** The part of that program that handles a duplicate, with its schemas in the handler. */
export const startRulesInline: StartServer = () => {
  const items = new Map<number, WorkItem>()
  const server = createServer({ name: 'work-items', version: '1.0.0', ...OPTIONS })
  const input = z.object({ workItemId: z.int(), fields: z.record(z.string(), z.string()) })
  server.tool(
    'update_work_item',
    { description: 'Change fields of a work item', input },
    async ({ workItemId, fields }, ctx) => {
      const state = fields['System.State'] ?? ''
      const { resolution } = await ctx.ask('resolution', {
        message: `Resolving Bug #${workItemId} requires a resolution. How was this bug resolved?`,
        schema: z.object({
          resolution: z
            .enum(['Fixed', "Won't Fix", 'Duplicate', 'By Design'])
            .describe('Resolution type for this bug'),
        }),
      })
      const { duplicateOfId } = await ctx.ask('duplicate_of', {
        message: 'Since this is a duplicate, which work item is the original?',
        schema: z.object({ duplicateOfId: z.number().describe('Work item ID of the original bug') }),
      })
      await ctx.effect(
        'update',
        () => void items.set(workItemId, { state, resolution, duplicateOf: duplicateOfId }),
      )
      return `Bug #${workItemId} resolved as Duplicate of Bug #${duplicateOfId}. State set to ${state} and duplicate link created.`
    },
  )
  return listen(server)
}

const Count = z.object({ count: z.int() })
const Resolution = z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) })

/**
 * `survey` asks with a hoisted schema, `survey_inline` with one created for each question. `survey_discarded` creates one as well and
 * asks with the hoisted one: what zod alone costs.
 */
export const startSurvey: StartServer = () => {
  const limits = { maxRounds: 10_000, maxBytes: 2 ** 20, warnBytes: 2 ** 20, maxEntries: 10_000 }
  const server = createServer({ name: 'survey', version: '1.0.0', ...OPTIONS, limits })
  server.tool('survey', { input: Count }, async ({ count }, ctx) => {
    for (let i = 0; i < count; i++) {
      await ctx.ask(`q${i}`, { message: `How was bug #${i} resolved?`, schema: Resolution })
    }
    return `${count} answers`
  })
  server.tool('survey_inline', { input: Count }, async ({ count }, ctx) => {
    for (let i = 0; i < count; i++) {
      await ctx.ask(`q${i}`, {
        message: `How was bug #${i} resolved?`,
        schema: z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) }),
      })
    }
    return `${count} answers`
  })
  const discarded: unknown[] = []
  server.tool('survey_discarded', { input: Count }, async ({ count }, ctx) => {
    for (let i = 0; i < count; i++) {
      discarded[0] = z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) })
      await ctx.ask(`q${i}`, { message: `How was bug #${i} resolved?`, schema: Resolution })
    }
    return `${count} answers`
  })
  // The steps come first, all of them in the round of the question.
  server.tool('walk', { input: Count }, async ({ count }, ctx) => {
    for (let i = 1; i < count; i++) await ctx.step(`step ${i}`, () => i)
    await ctx.ask('q', { message: 'How was the bug resolved?', schema: Resolution })
    return `${count} entries`
  })
  return listen(server)
}
