/**
 * `npm start` opens this server in the console, as three processes. Its tasks are in `.rondo/tasks.db`: stop the console in
 * the middle of one, start it again, and the task continues.
 */

import { mkdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createServer } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

const resolutions = z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) })
const channels = z.object({ channel: z.enum(['beta', 'stable']), notes: z.string().max(200).optional() })
const checks = z.object({ gone: z.boolean() })

mkdirSync('.rondo', { recursive: true })
const store = createSqliteStore({ file: '.rondo/tasks.db' })
const server = createServer({ name: 'tracker', version: '1.0.0', store })

server.tool(
  'resolve_bug',
  { description: 'Resolve a bug: one question', input: z.object({ id: z.int() }) },
  async ({ id }, ctx) => {
    const { resolution } = await ctx.ask('resolution', {
      message: `How was bug #${id} resolved?`,
      schema: resolutions,
    })
    await ctx.effect('save', ({ key }) => ({ saved: id, key }))
    return `Bug #${id} resolved as ${resolution}.`
  },
)

server.tool(
  'release',
  {
    description: 'Release a version: a step, two questions, then an effect',
    input: z.object({ version: z.string() }),
  },
  async ({ version }, ctx) => {
    const open = await ctx.step('count bugs', async () => ({ open: 3 }))
    const { channel, notes } = await ctx.ask('channel', {
      message: `${open.open} bugs are open. Where should ${version} go?`,
      schema: channels,
    })
    if (!(await ctx.confirm('sure', `Publish ${version} to ${channel}?`))) return 'Nothing was published.'
    await ctx.effect('publish', ({ key }) => ({ version, channel, key }))
    return `${version} is out in ${channel}${notes ? `: ${notes}` : '.'}`
  },
)

server.tool(
  'report',
  {
    description: 'Report on a year of bugs: continues as a task',
    input: z.object({ year: z.int().min(2000) }),
  },
  async ({ year }, ctx) => {
    await ctx.background()
    for (let month = 1; month <= 12; month++) {
      ctx.status(`month ${month} of 12`)
      await ctx.step(`month:${month}`, async ({ signal }) => sleep(1000, month, { signal }))
    }
    return `Nothing went wrong in ${year}.`
  },
)

server.tool(
  'follow_up',
  {
    description: 'Ask again later: a task that sleeps, then asks for at most ten minutes',
    input: z.object({ id: z.int() }),
    task: 'auto',
  },
  async ({ id }, ctx) => {
    await ctx.sleep('pause', '15 s')
    const outcome = await ctx.elicit('gone', {
      message: `Is bug #${id} gone?`,
      schema: checks,
      within: '10 min',
    })
    if (outcome.action !== 'accept') return `Nobody knows about bug #${id}.`
    return outcome.content.gone ? `Bug #${id} is gone.` : `Bug #${id} is back.`
  },
)

export default server
