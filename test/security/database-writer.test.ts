/**
 * An attacker who can write to the task database but has no key: answers and questions are moved, rows get another
 * owner. Each attack has a control: the same writes with legitimate values count.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openSqlite, type SqlRow } from '../../packages/rondo/src/store/sqlite/database.ts'
import { until } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const YES = { action: 'accept', content: { confirm: true } }
const closing: (() => Promise<unknown>)[] = []
let folder: string
let file: string
let deleted: number
let logged: string[]
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rondo-writer-'))
  file = join(folder, 'tasks.db')
  deleted = 0
  logged = []
})
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
  await rm(folder, { recursive: true })
})

const log = (event: LogEvent) => void ('message' in event && logged.push(event.message))

function start(options: Partial<ServerOptions> = {}): Server {
  const store = createSqliteStore({ file })
  const server = createServer({
    name: 'files',
    version: '1',
    keys,
    log,
    store,
    authenticate: ({ headers }) => ({ subject: headers('x-user') ?? 'alice' }),
    ...options,
  })
  server.tool('clean', { task: 'always' }, async (_args, ctx) => {
    await ctx.confirm('look', 'Look at your files?')
    if (!(await ctx.confirm('delete', 'Delete everything?'))) return 'kept'
    await ctx.effect('delete them', () => void deleted++)
    return 'deleted'
  })
  closing.push(async () => {
    await server.close()
    await store.close()
  })
  return server
}

/** One statement of the attacker. */
function write(sql: string, ...values: string[]): SqlRow[] {
  const connection = openSqlite(file)
  try {
    connection.prepare('PRAGMA busy_timeout = 5000').get()
    connection.exec('BEGIN IMMEDIATE')
    const rows = connection.prepare(sql).all(...values)
    connection.exec('COMMIT')
    return rows
  } finally {
    connection.close()
  }
}

type Slot = [key: string, request: string | null, answer: string | null]
const readSlots = (id: string): Slot[] =>
  JSON.parse(String(write('SELECT inputs FROM task WHERE id = ?', id)[0]?.inputs))

/** Marks the question "delete" as answered, and the task as due. */
function answerDelete(id: string, answer: string | null): void {
  const slots = readSlots(id).map((slot) => (slot[0] === 'delete' ? [slot[0], null, answer] : slot))
  const set = "UPDATE task SET inputs = ?, status = 'working', due_at = 0 WHERE id = ? RETURNING id"
  expect(write(set, JSON.stringify(slots), id)).toHaveLength(1)
}

const asUser = (user: string) => ({ headers: { 'x-user': user } })
const get = (server: Server, taskId: string, user = 'alice') =>
  send(server, 'tasks/get', { taskId }, asUser(user))

/** A task of Alice: "look" is answered, and it asks whether to delete. */
async function begin(server: Server): Promise<string> {
  const { result } = await send(server, 'tools/call', { name: 'clean' })
  const taskId = String(result?.taskId)
  await settled(server, taskId)
  await send(server, 'tasks/update', { taskId, inputResponses: { look: YES } })
  await until('the second question', async () => {
    const { inputRequests = {} } = (await settled(server, taskId)) as { inputRequests?: object }
    return 'delete' in inputRequests
  })
  return taskId
}

describe('I7 write access to the database', () => {
  it('T17 an answer copied to another question does not count', async () => {
    const server = start()
    const id = await begin(server)
    const harmless = readSlots(id).find(([key]) => key === 'look')?.[2] ?? null
    expect(harmless).toMatch(/^r1\./)
    answerDelete(id, harmless)
    await until('the refusal', () => logged.some((line) => line.includes('does not open')))
    expect(deleted).toBe(0)
    expect((await get(server, id)).result?.status).not.toBe('completed')
  })

  it('control: an answer given to this question counts, although it was written in the same way', async () => {
    const server = start()
    const id = await begin(server)
    await server.close()
    const front = start({ tasks: { concurrency: 0 } })
    await send(front, 'tasks/update', { taskId: id, inputResponses: { delete: YES } })
    const genuine = readSlots(id).find(([key]) => key === 'delete')?.[2] ?? null
    answerDelete(id, genuine)
    expect(await settled(start(), id)).toMatchObject({ result: { content: [{ text: 'deleted' }] } })
    expect(deleted).toBe(1)
  })
})

it('T17 a question moved into the place of another is not shown', async () => {
  const server = start()
  const { result } = await send(server, 'tools/call', { name: 'clean' })
  const id = String(result?.taskId)
  await settled(server, id)
  const harmless = readSlots(id)[0]?.[1] ?? ''
  await send(server, 'tasks/update', { taskId: id, inputResponses: { look: YES } })
  await until(
    'the second question',
    async () => 'delete' in ((await settled(server, id)).inputRequests as object),
  )
  const slots = readSlots(id).map((slot) => (slot[0] === 'delete' ? [slot[0], harmless, null] : slot))
  write('UPDATE task SET inputs = ? WHERE id = ? RETURNING id', JSON.stringify(slots), id)
  const shown = await get(server, id)
  expect(JSON.stringify(shown)).not.toContain('Look at your files')
  expect(shown.error).toMatchObject({ code: -32603 })
})

describe('I7 a row with another owner', () => {
  const tagOf = async (server: Server, user: string): Promise<string> => {
    const { result } = await send(server, 'tools/call', { name: 'clean' }, asUser(user))
    return String(write('SELECT principal FROM task WHERE id = ?', String(result?.taskId))[0]?.principal)
  }
  const give = (id: string, tag: string) =>
    write('UPDATE task SET principal = ? WHERE id = ? RETURNING id', tag, id)

  it('T17 lets that owner neither read the task nor answer it', async () => {
    const server = start()
    const id = await begin(server)
    const [alice, mallory] = [await tagOf(server, 'alice'), await tagOf(server, 'mallory')]
    expect((await get(server, id, 'mallory')).error).toMatchObject({ code: -32602 })
    give(id, mallory)
    const read = await get(server, id, 'mallory')
    expect(read.error).toMatchObject({ code: -32603 })
    expect(JSON.stringify(read)).not.toContain('Delete everything')
    const answer = { taskId: id, inputResponses: { delete: YES } }
    await send(server, 'tasks/update', answer, asUser('mallory'))
    await until('the refusal', () => logged.some((line) => line.includes('does not belong to the owner')))
    // With its owner restored, it has an answer that was not Alice's.
    give(id, alice)
    write('UPDATE task SET due_at = 0, worker = NULL WHERE id = ? RETURNING id', id)
    await until('the refusal', () =>
      logged.some((line) => line.includes('"answer delete"') || line.includes('The answer delete')),
    )
    expect(deleted).toBe(0)
  })

  it('T17 does not let that owner read the result of an ended task; the real owner can', async () => {
    const server = start()
    const id = await begin(server)
    await send(server, 'tasks/update', { taskId: id, inputResponses: { delete: YES } })
    const text = JSON.stringify(await settled(server, id))
    expect(text).toContain('deleted')
    const mallory = await tagOf(server, 'mallory')
    give(id, mallory)
    const read = await get(server, id, 'mallory')
    expect(read.result).toBeUndefined()
    expect(read.error).toMatchObject({ code: -32603 })
  })
})

it('T17 a service does not see the tasks of another service with the same database and keys', async () => {
  const server = start()
  const id = await begin(server)
  const other = start({ name: 'other' })
  expect((await get(other, id)).error).toMatchObject({ code: -32602, message: 'Task not found' })
  expect((await send(other, 'tasks/cancel', { taskId: id })).error).toMatchObject({ code: -32602 })
  expect((await get(server, id)).result).toMatchObject({ status: 'input_required' })
  // Control: a service of the same name does.
  expect((await get(start(), id)).result).toMatchObject({ status: 'input_required' })
})
