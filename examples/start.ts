/**
 * `npm start`: serves a tracker and its reports on loopback, and prints what to try. Tasks are kept in `.rondo/tasks.db`,
 * sealed with a key beside it: stop this process in the middle of a task, start it again, and the task resumes.
 */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createServer, generateKey, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'
import { tryOut } from './start-curl.ts'

const FOLDER = '.rondo'

/** A key for this machine alone; a server for others needs `RONDO_KEYS`. */
function localKey(): string {
  try {
    return readFileSync(`${FOLDER}/key`, 'utf8')
  } catch {
    const key = generateKey('local')
    writeFileSync(`${FOLDER}/key`, key, { mode: 0o600 })
    return key
  }
}

/** Without SQLite the server has no tasks: it says so and serves every call in rounds. */
async function openStore(): Promise<ServerOptions['store']> {
  const store = createSqliteStore({ file: `${FOLDER}/tasks.db` })
  try {
    await store.ready()
    return store
  } catch (error) {
    console.warn(`No tasks, only rounds: ${(error as Error).message}`)
    return undefined
  }
}

mkdirSync(FOLDER, { recursive: true })
const store = await openStore()
const server = createServer({
  name: 'tracker',
  version: '1.0.0',
  dev: true,
  keys: process.env.RONDO_KEYS ?? localKey(),
  store,
})
const bugs = new Map<number, string>()

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

server.tool(
  'report',
  { description: 'Report on a year of bugs', input: z.object({ year: z.int() }) },
  async ({ year }, ctx) => {
    await ctx.background()
    for (let month = 1; month <= 12; month++) {
      ctx.status(`month ${month} of 12`)
      await ctx.step(`month:${month}`, async ({ signal }) => sleep(1000, month, { signal }))
    }
    return `Nothing went wrong in ${year}.`
  },
)

const { url } = await server.listen()
console.log(tryOut(url, store !== undefined))
