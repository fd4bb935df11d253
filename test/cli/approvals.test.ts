/** `rondo approvals`: the requests and the record of a server, from the command line. Needs the build. */

import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { createApprovals, verifyRecord } from '../../packages/approvals/src/index.ts'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { createServer, generateKey, type Server } from '../../packages/rondo/src/index.ts'
import { createSqliteStore } from '../../packages/rondo/src/sqlite.ts'
import { send, settled } from '../support/task-client.ts'
import { useCliHome } from '../support/use-cli.ts'

const home = useCliHome()
const keys = generateKey()
const built = (path: string): string => pathToFileURL(resolve('packages', path)).href
const servers: Server[] = []
afterAll(() => Promise.all(servers.map((server) => server.close())))

/** A server that runs a task in this process, and a file that exports one with the same name and store. */
async function createRelease({ operators, quorum = 1 }: { operators: boolean; quorum?: number }) {
  const database = join(home.path, 'releases.db')
  const file = join(home.path, 'releases.mjs')
  writeFileSync(
    file,
    `import { createServer } from '${built('rondo/dist/index.js')}'
    import { createSqliteStore } from '${built('rondo/dist/sqlite.js')}'
    import { createApprovals } from '${built('approvals/dist/index.js')}'
    const server = createServer({ name: 'releases', version: '1', store: createSqliteStore({ file: '${database}' }) })
    server.use(createApprovals({
      url: 'http://127.0.0.1:3000/approvals', login: () => undefined, groups: () => [], operators: ${operators},
    }))
    export default server`,
  )
  const store = createSqliteStore({ file: database })
  const server = createServer({ name: 'releases', version: '1', keys, log: 'off', store })
  servers.push(server)
  const approvals = createApprovals({
    url: 'http://127.0.0.1:3000/approvals',
    login: () => undefined,
    groups: () => [],
    operators,
  })
  server.use(approvals)
  const effects: string[] = []
  server.tool('deploy', { task: 'always' }, async (_, ctx) => {
    await ctx.approve('deploy', {
      from: 'managers',
      message: 'Deploy\u001b[31m?',
      details: { version: '1.2.3' },
      quorum,
      passNote: true,
    })
    await ctx.effect('deploy', ({ key }) => void effects.push(key))
    return 'Deployed.'
  })
  const { result } = await send(server, 'tools/call', { name: 'deploy', arguments: {} })
  const open = async () => (await approvals.desk().list(['open'], 2)).requests
  await expect.poll(open).toHaveLength(1)
  const [{ id, hook } = { id: '', hook: '' }] = await open()
  const run = (action: string, ...words: string[]) =>
    home.run(['approvals', action, file, ...words], { env: { RONDO_KEYS: keys } })
  const ended = () => settled(server, String(result?.taskId))
  return { id, hook, run, ended, effects, store, approvals }
}

describe('rondo approvals', () => {
  it('L5 V6 lists, shows and decides a request, continues its task elsewhere, and verifies the record', async () => {
    const { id, hook, run, ended, effects, approvals } = await createRelease({ operators: true })
    const listed = await run('list')
    expect(listed).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`${id}  open  deploy  managers`),
    })
    const shown = await run('show', id, '--json')
    expect(JSON.parse(shown.stdout)).toMatchObject({
      request: { id, details: { version: '1.2.3' }, state: 'open' },
      history: [{ seq: 1, happening: { event: 'asked' } }],
    })
    expect(shown.stdout).not.toContain(hook)

    expect(await run('approve', id)).toMatchObject({ code: EXITS.usage.code })
    expect(effects).toEqual([])
    expect(await run('approve', id, '--as', 'olga', '--note', 'Go.')).toMatchObject({ code: 0 })
    expect(await ended()).toMatchObject({ result: { content: [{ text: 'Deployed.' }, {}] } })
    expect(effects).toHaveLength(1)
    expect(await run('deny', id, '--as', 'olga')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('Nothing was changed'),
    })
    expect(JSON.parse((await run('list', '--json')).stdout)).toEqual({ requests: [] })
    expect((await run('list', '--closed')).stdout).toContain(`${id}  approved`)
    const vote = { event: 'voted', via: 'command', operator: true, name: 'olga', note: 'Go.' }
    const events = (await approvals.desk().history(id)).map(({ happening }) => happening)
    expect(events).toContainEqual(expect.objectContaining(vote))
    expect(await run('verify')).toMatchObject({ code: 0, stdout: expect.stringContaining('no problems') })
  })

  it('L5 V6 finds a record that was cut, and exports one that public keys verify', async () => {
    const { run } = await createRelease({ operators: false })
    const whole = JSON.parse((await run('verify', '--json')).stdout)
    const { seq, hash } = whole.head
    expect(whole).toMatchObject({ tenant: 'releases', problems: [], entries: seq })
    expect(await run('verify', '--head', `${seq}:${hash}`)).toMatchObject({ code: 0 })
    const cut = await run('verify', '--head', `${seq + 5}:${hash}`)
    expect(cut).toMatchObject({ code: 1, stdout: expect.stringContaining(`The record ends at ${seq}`) })
    expect(await run('verify', '--head', `${seq}:${'0'.repeat(64)}`)).toMatchObject({ code: 1 })
    expect(await run('verify', '--head', 'x')).toMatchObject({ code: EXITS.usage.code })

    const exported = await run('export')
    const [first, ...entries] = exported.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(entries).toHaveLength(seq)
    const check = (lines: readonly never[]) =>
      verifyRecord(
        (async function* () {
          yield* lines
        })(),
        first,
      )
    expect(await check(entries as never[])).toMatchObject({ entries: seq, problems: [] })
    const forged = entries.map((entry) => ({ ...entry, at: entry.at + 1 }))
    expect((await check(forged as never[])).problems).not.toEqual([])
  })

  it('L1 V1 decides nothing without operators: true', async () => {
    const { id, run, effects, approvals } = await createRelease({ operators: false })
    expect(await run('approve', id, '--as', 'olga')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('createApprovals({ operators: true }) permits it'),
    })
    expect(await approvals.desk().get(id)).toMatchObject({ state: 'open', votes: [] })
    expect(effects).toEqual([])
  })

  it('V3 says that the first vote of a quorum decides nothing yet, and shows a note only if asked to', async () => {
    const { id, run, ended, effects, approvals } = await createRelease({ operators: true, quorum: 2 })
    const first = await run('approve', id, '--as', 'olga', '--note', 'Between us.')
    expect(first.code).toBe(0)
    expect(first.stderr).toMatch(/^1 of 2 approvals: the request waits for more\.$/m)
    expect(effects).toEqual([])
    const again = await run('approve', id, '--as', 'olga', '--json')
    expect([again.code, JSON.parse(again.stdout)]).toEqual([
      1,
      { kind: 'refused', state: 'open', message: 'Nothing was changed: you have decided before.' },
    ])
    const second = await run('approve', id, '--as', 'otto', '--note', 'Go.', '--show-note', '--json')
    expect(JSON.parse(second.stdout)).toEqual({ kind: 'decided', state: 'approved', message: 'Approved.' })
    await ended()
    expect(effects).toHaveLength(1)
    const { used } = (await approvals.desk().get(id)) ?? {}
    expect(used).toMatchObject({ by: [{ name: 'olga' }, { name: 'otto', note: 'Go.' }] })
    expect(JSON.stringify(used)).not.toContain('Between us')
  })

  it('lists the requests of an official server', async () => {
    const file = join(home.path, 'official.mjs')
    const node_modules = pathToFileURL(resolve('node_modules')).href
    writeFileSync(
      file,
      `import { McpServer } from '${node_modules}/@modelcontextprotocol/server/dist/index.mjs'
      import { createRondo } from '${built('rondo/dist/sdk.js')}'
      import { createSqliteStore } from '${built('rondo/dist/sqlite.js')}'
      import { createApprovals } from '${built('approvals/dist/index.js')}'
      const rondo = createRondo({ audience: 'official', store: createSqliteStore({ file: '${join(home.path, 'official.db')}' }) })
      rondo.use(createApprovals({ url: 'http://127.0.0.1:3000/approvals', login: () => undefined, groups: () => [] }))
      export default () => rondo.tasks(new McpServer({ name: 'official', version: '1' }))`,
    )
    const listed = await home.run(['approvals', 'list', file, '--json'], { env: { RONDO_KEYS: keys } })
    expect([listed.code, JSON.parse(listed.stdout)]).toEqual([0, { requests: [] }])
  })

  it('says what is wrong with the command line and with the file', async () => {
    const file = join(home.path, 'plain.mjs')
    writeFileSync(
      file,
      `import { createServer } from '${built('rondo/dist/index.js')}'
      export default createServer({ name: 'plain', version: '1' })`,
    )
    const run = (...words: string[]) => home.run(['approvals', ...words])
    expect(await run('list', file)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('The server uses no approvals'),
    })
    for (const words of [
      [],
      ['lst', file],
      ['list'],
      ['list', file, 'x'],
      ['show', file],
      ['list', 'missing.ts'],
    ])
      expect((await run(...words)).code, words.join(' ')).toBe(EXITS.usage.code)
  })
})
