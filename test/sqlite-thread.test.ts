/** The thread of a SQLite file as it is shipped: programs on the build, which `npm test` makes first. */

import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'

const run = promisify(execFile)

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rondo-thread-'))
})
afterAll(() => rm(folder, { recursive: true }))

/** Runs a program that has a `store` on a new file, and returns what it printed. */
async function program(name: string, code: string): Promise<string> {
  const entry = JSON.stringify(resolve('packages/rondo/dist/sqlite.js'))
  const file = JSON.stringify(join(folder, `${name}.db`))
  const source = `
    import { createSqliteStore } from ${entry}
    const owner = { tenant: 't', principal: 'p' }
    const task = { id: 'a'.repeat(22), owner, head: 'head', ttlMs: 60_000, pollMs: 10 }
    const open = () => createSqliteStore({ file: ${file} })
    const store = open()
    ${code}`
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', source])
  return stdout.trim()
}

it('E2 the thread completes a write before the process ends, and an idle thread does not keep the process alive', async () => {
  const printed = await program(
    'end',
    `store.tasks.onHint(() => {})
    store.tasks.create(task, 10).then(({ kind }) => console.log(kind))`,
  )
  expect(printed).toBe('created')
})

it('E2 the store opens the file in a thread of its own', async () => {
  const printed = await program(
    'thread',
    `await store.ready()
    console.log(process.getActiveResourcesInfo().includes('MessagePort'))
    await store.close()
    console.log(process.getActiveResourcesInfo().includes('MessagePort'))`,
  )
  expect(printed).toBe('true\nfalse')
})

it('L6 the store has a task for another process as soon as its creation is acknowledged', async () => {
  const printed = await program(
    'other',
    `await store.tasks.create(task, 10)
    const other = open()
    console.log((await other.tasks.get(task.id, owner))?.status)
    await Promise.all([store.close(), other.close()])`,
  )
  expect(printed).toBe('working')
})
