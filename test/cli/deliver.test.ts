/** `rondo deliver`: an event for a hook, from the command line. Needs the build. */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { connect } from '../../packages/rondo/src/client.ts'
import { createServer, generateKey, type Server } from '../../packages/rondo/src/index.ts'
import { createSqliteStore } from '../../packages/rondo/src/sqlite.ts'
import { startConsole } from '../support/console-process.ts'
import { follow, send } from '../support/task-client.ts'
import { useCliHome } from '../support/use-cli.ts'

const home = useCliHome()
const keys = generateKey()
const built = (name: string): string => pathToFileURL(resolve(`packages/rondo/dist/${name}.js`)).href
const CENTS = { type: 'object', properties: { cents: { type: 'integer' } }, required: ['cents'] } as const

const servers: Server[] = []
afterAll(() => Promise.all(servers.map((server) => server.close())))

describe('rondo deliver', () => {
  it('G6 delivers to the hook of a task that another process runs, once, and says what became of every other event', async () => {
    const database = join(home.path, 'shop.db')
    const file = join(home.path, 'shop.mjs')
    writeFileSync(
      file,
      `import { createServer } from '${built('index')}'
      import { createSqliteStore } from '${built('sqlite')}'
      export default createServer({ name: 'shop', version: '1', store: createSqliteStore({ file: '${database}' }) })`,
    )
    const server = createServer({
      name: 'shop',
      version: '1',
      keys,
      log: 'off',
      store: createSqliteStore({ file: database }),
    })
    servers.push(server)
    const opened = new Promise<string>((open) => {
      server.tool('order', { task: 'always' }, async (_args, ctx) => {
        const paid = await ctx.hook('paid', { schema: CENTS })
        open(paid.id)
        return `paid: ${((await paid.received()) as { cents: number }).cents}`
      })
    })
    const { result } = await send(server, 'tools/call', { name: 'order', arguments: {} })
    const id = await opened
    const env = { RONDO_KEYS: keys }
    const deliver = (...words: string[]) => home.run(['deliver', file, ...words], { env })

    const misfit = await deliver(id, '{"cents":"many"}')
    expect(misfit).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('rejected, and the hook stays open'),
    })
    expect(await deliver('h.made-up', '{}')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('No hook has this id here'),
    })
    const accepted = await deliver(id, '{"cents":500}')
    expect(accepted).toMatchObject({ code: 0, stderr: expect.stringContaining('The hook has the event') })
    const again = await home.run(['deliver', file, id, '-', '--json'], { env, input: '{"cents":900}' })
    expect(again.code).toBe(1)
    expect(['duplicate', 'closed']).toContain(JSON.parse(again.stdout).kind)
    expect(await follow(server, String(result?.taskId), {})).toMatchObject({
      result: { content: [{ text: 'paid: 500' }] },
    })
  })

  it('uses the keys that the file itself names, if RONDO_KEYS is not set', async () => {
    const database = join(home.path, 'own.db')
    const file = join(home.path, 'own.mjs')
    writeFileSync(
      file,
      `import { createServer } from '${built('index')}'
      import { createSqliteStore } from '${built('sqlite')}'
      const keys = process.env.RONDO_KEYS || '${keys}'
      export default createServer({ name: 'own', version: '1', keys, store: createSqliteStore({ file: '${database}' }) })`,
    )
    const store = createSqliteStore({ file: database })
    const server = createServer({ name: 'own', version: '1', keys, log: 'off', store })
    servers.push(server)
    const opened = new Promise<string>((open) => {
      server.tool('order', { task: 'always' }, async (_args, ctx) => {
        const paid = await ctx.hook('paid', { schema: CENTS })
        open(paid.id)
        return `paid: ${((await paid.received()) as { cents: number }).cents}`
      })
    })
    await send(server, 'tools/call', { name: 'order', arguments: {} })
    expect(await home.run(['deliver', file, await opened, '{"cents":500}'])).toMatchObject({ code: 0 })
  })

  it('G6 delivers through a console to the instance that alone has the task in its store', async () => {
    const desk = await startConsole({
      source: `import { createServer } from '${built('index')}'
        import { createSqliteStore } from '${built('sqlite')}'
        import { appendFileSync } from 'node:fs'
        const store = createSqliteStore({ file: process.pid + '.db' })
        const server = createServer({ name: 'shop', version: '1', store })
        server.tool('order', { task: 'always' }, async (_args, ctx) => {
          const paid = await ctx.hook('paid', { schema: ${JSON.stringify(CENTS)} })
          await ctx.step('open', () => appendFileSync(process.pid + '.open', paid.id + '\\n'))
          const { cents } = await paid.received()
          await ctx.step('note', () => appendFileSync(process.pid + '.paid', String(cents)))
        })
        export default server`,
      args: ['--no-watch'],
    })
    const read = (ending: string): string[] =>
      readdirSync(desk.folder)
        .filter((name) => name.endsWith(ending))
        .map((name) => readFileSync(join(desk.folder, name), 'utf8'))
    try {
      const client = await connect(desk.mcp)
      // The console hands calls to its instances in turn.
      const order = async (): Promise<number> => {
        await client.start({ method: 'tools/call', name: 'order', arguments: {} })
        return read('.open').length
      }
      await expect.poll(order).toBe(2)
      await client.close()
      const [first = '', second = ''] = read('.open').map((ids) => ids.slice(0, ids.indexOf('\n')))
      const deliver = (...words: string[]) => home.run(['deliver', ...words])
      expect(await deliver(desk.page, first, '{"cents":"many"}')).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('rejected, and the hook stays open'),
      })
      expect(await deliver(`${desk.page}/tasks`, first, '{"cents":1}')).toMatchObject({ code: 0 })
      expect(await deliver(desk.page, second, '{"cents":2}', '--json')).toMatchObject({
        code: 0,
        stdout: expect.stringContaining('"kind": "accepted"'),
      })
      await expect.poll(() => read('.paid').sort()).toEqual(['1', '2'])
      expect(await deliver(desk.page, 'h.made-up', '{}')).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('No hook has this id here'),
      })
      expect(await deliver(`${desk.origin}/#guessed`, second, '{}')).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('use the address that it printed'),
      })
    } finally {
      await desk.stop()
    }
    expect((await home.run(['deliver', desk.page, 'h.x', '{}'])).code).toBe(EXITS.unreachable.code)
  })

  it('sends the token of a console to this machine only, and needs it', async () => {
    for (const address of ['http://127.0.0.1:9', 'http://example.com/#token', 'https://127.0.0.1:9/#token']) {
      expect(await home.run(['deliver', address, 'h.x', '{}'])).toMatchObject({
        code: EXITS.usage.code,
        stderr: expect.stringContaining('with the token'),
      })
    }
  })

  it('refuses what is not JSON, a file that is not there, and a file whose server has no store', async () => {
    const file = join(home.path, 'plain.mjs')
    writeFileSync(
      file,
      `import { createServer } from '${built('index')}'
      export default createServer({ name: 'plain', version: '1' })`,
    )
    const run = (...words: string[]) => home.run(['deliver', ...words])
    expect(await run(file, 'h.x', 'no json')).toMatchObject({ code: EXITS.usage.code })
    expect(await run('nowhere.mjs', 'h.x', '{}')).toMatchObject({ code: EXITS.usage.code })
    expect(await run(file, 'h.x', '{}')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('server.deliver needs a store'),
    })
  })
})
