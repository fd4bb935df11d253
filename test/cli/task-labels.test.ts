/** `rondo tasks` finds tasks by their labels, with the keys. Needs the build. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createServer, generateKey, type Server } from 'rondo'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { send, settled } from '../support/task-client.ts'
import { useCliHome } from '../support/use-cli.ts'

const home = useCliHome()
const keys = generateKey('k')
let database: Awaited<ReturnType<typeof createSqliteDatabase>>
let server: Server
let ids: string[]
let ring: string[]

beforeEach(async () => {
  database = await createSqliteDatabase()
  server = createServer({ name: 'shop', version: '1', keys, log: 'off', store: database.open() })
  server.tool('ship', { task: 'always' }, async (args, ctx) => {
    ctx.label({ order: String(args.order), country: 'se' })
    return `sure: ${await ctx.confirm('sure', 'Sure?')}`
  })
  ids = []
  for (const order of ['4711', '4712']) {
    const { result } = await send(server, 'tools/call', { name: 'ship', arguments: { order } })
    ids.push(String(result?.taskId))
    await settled(server, String(result?.taskId))
  }
  writeFileSync(join(home.path, 'keys'), keys)
  ring = ['--keys', join(home.path, 'keys')]
})
afterEach(async () => {
  await server.close()
  await database.close()
})

const tasks = (...words: string[]) => home.run(['tasks', ...words])

it('M5 rondo tasks lists the tasks with a label, and shows labels, to those who have the keys', async () => {
  const listed = await home.json(['tasks', 'list', database.file, '--label', 'order=4711', ...ring])
  expect(listed.value.tasks).toMatchObject([{ id: ids[0] }])
  expect(listed.stdout).not.toContain('4711')
  const both = ['--label', 'order=4712', '--label', 'country=se']
  expect((await home.json(['tasks', 'list', database.file, ...both, ...ring])).value.tasks).toMatchObject([
    { id: ids[1] },
  ])
  const all = await home.json(['tasks', 'list', database.file, '--label', 'country=se', ...ring])
  expect(all.value.tasks).toHaveLength(2)
  const none = await tasks('list', database.file, '--label', 'order=471', ...ring)
  expect(none).toMatchObject({ code: 0, stdout: '' })
  const [id = ''] = ids
  expect((await tasks('show', database.file, id, ...ring)).stdout).toMatch(
    /^labels +{"order":"4711","country":"se"}$/m,
  )
  const blind = await tasks('show', database.file, id, '--json')
  expect(blind.code).toBe(0)
  expect(blind.stdout).not.toMatch(/label|4711/)
  const foreign = join(home.path, 'others')
  writeFileSync(foreign, generateKey('k'))
  const refused = await tasks('show', database.file, id, '--keys', foreign)
  expect(refused.stdout).toContain('does not open with these keys')
  expect(refused.stdout).not.toContain('4711')
  expect((await tasks('list', database.file, '--label', 'order=4711', '--keys', foreign)).stdout).toBe('')
})

it('M5 rondo tasks shows hidden characters of a label as escapes, so that it is not mistaken for another', async () => {
  const order = '47\u200b11\u001b[2J\u202e  \u2028\u00e4'
  const { result } = await send(server, 'tools/call', { name: 'ship', arguments: { order } })
  const id = String(result?.taskId)
  await settled(server, id)
  const { stdout } = await tasks('show', database.file, id, ...ring)
  expect(stdout).toContain('{"order":"47\\u200b11\\u001b[2J\\u202e  \\u2028\u00e4",')
  const [, shown = ''] = /^labels +(.*)$/m.exec(stdout) ?? []
  expect(JSON.parse(shown)).toMatchObject({ order })
  const listed = await home.json(['tasks', 'list', database.file, '--label', `order=${order}`, ...ring])
  expect(listed.value.tasks).toMatchObject([{ id }])
})

it('M5 rondo tasks says what --label needs', async () => {
  const blind = await tasks('list', database.file, '--label', 'order=4711')
  expect(blind).toMatchObject({ code: EXITS.usage.code, stdout: '' })
  expect(blind.stderr).toContain(
    'Name a file with --keys, or set RONDO_KEYS, because labels are found by tags',
  )
  const bad = await tasks('list', database.file, '--label', 'order', ...ring)
  expect(bad.code).toBe(EXITS.usage.code)
  expect(bad.stderr).toContain('--label takes a name and a value, such as order=4711, not "order"')
})
