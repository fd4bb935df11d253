/** The page of `rondo console --store` in a real browser, on a SQLite file with the tasks of a server. Needs the build, and chromium. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { renameSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createServer, generateKey, type Server } from 'rondo'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { HAS_BROWSER, openBrowser, runAxe, type TestBrowser } from '../support/browser.ts'
import { CLI } from '../support/run-cli.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { send, settled } from '../support/task-client.ts'

vi.setConfig({ testTimeout: 120_000 })

const HOSTILE = '<img src=x onerror="window.hit=1">\u202e\u200bevil'

describe.skipIf(!HAS_BROWSER)('the page of a store', () => {
  const keys = generateKey('k')
  let database: Awaited<ReturnType<typeof createSqliteDatabase>>
  let server: Server
  let browser: TestBrowser
  let asks: string
  let failed: string
  const children: ChildProcess[] = []

  const begin = async (name: string): Promise<string> => {
    const id = String(
      (await send(server, 'tools/call', { name, arguments: { note: HOSTILE } })).result?.taskId,
    )
    await settled(server, id)
    return id
  }

  /** Starts the console, and returns the address of its page. */
  const start = async (...words: string[]): Promise<string> => {
    const ring = join(dirname(database.file), 'ring')
    writeFileSync(ring, keys)
    const args = [CLI, 'console', '--store', database.file, '--port', '0', '--json', '--as', 'ann']
    const child = spawn(process.execPath, [...args, '--keys', ring, ...words])
    children.push(child)
    let text = ''
    for await (const chunk of child.stdout.setEncoding('utf8')) {
      text += chunk
      if (text.includes('}\n')) break
    }
    return JSON.parse(text).page
  }

  beforeAll(async () => {
    database = await createSqliteDatabase()
    server = createServer({ name: 'shop', version: '1', keys, log: 'off', store: database.open() })
    server.tool('asks', { task: 'always' }, async (_args, ctx) => `${await ctx.confirm('sure', 'Sure?')}`)
    server.tool('order', { task: 'always' }, async (_args, ctx) => {
      await ctx.step(HOSTILE, () => HOSTILE)
      await ctx.step('price', () => Number.NaN)
      return 'ordered'
    })
    ;[asks, failed] = [await begin('asks'), await begin('order')]
    browser = await openBrowser()
  })
  afterAll(async () => {
    await browser?.close()
    for (const child of children) {
      child.kill('SIGTERM')
      await once(child, 'exit')
    }
    await server?.close()
    await database?.close()
  })

  it('M4 lists and opens a task, offers no change without --act, and a forged request is refused', async () => {
    const { page } = browser
    await page.goto(await start())
    await page.getByText('read-only').waitFor()
    await page.getByRole('link', { name: asks }).click()
    await page.locator('h1 .outcome.input_required').waitFor()
    await page.getByText('Opened with the keys').waitFor()
    expect(await page.locator('main').innerText()).toMatch(/tool\s+asks/)
    expect(await page.getByRole('button', { name: 'Cancel' }).count()).toBe(0)
    const forged = `fetch('/api/act', {
      method: 'POST',
      headers: { authorization: 'Bearer ' + location.hash.slice(1).split('/')[0], 'content-type': 'application/json' },
      body: JSON.stringify({ action: 'cancel', subject: '${asks}' }),
    }).then((response) => response.status)`
    expect(await page.evaluate(forged)).toBe(403)
    expect((await send(server, 'tasks/get', { taskId: asks })).result).toMatchObject({
      status: 'input_required',
    })
    expect(browser.problems.splice(0).filter((text) => !text.includes('403'))).toEqual([])
  })

  it('M4 filters, cancels a task after a confirmation, shows it in the log, and draws hostile text as text', async () => {
    const { page } = browser
    await page.goto('about:blank')
    await page.goto(await start('--act', '--content'))
    await page.getByText('you act as ann').waitFor()
    await page.getByLabel('Status').selectOption('failed')
    await page.getByRole('link', { name: asks }).waitFor({ state: 'detached' })
    expect((await runAxe(page)).violations).toEqual([])
    await page.getByRole('link', { name: failed }).click()
    await page.locator('td code', { hasText: '<img src=x' }).waitFor()
    expect(await page.locator('main').innerText()).not.toMatch(/[\u202e\u200b]/)
    expect(await page.evaluate("[document.images.length, 'hit' in window]")).toEqual([0, false])
    await page.getByRole('button', { name: 'Retry from here' }).first().click()
    await page.getByText('run again under new keys').waitFor()
    await page.getByRole('button', { name: 'No', exact: true }).click()
    await page.locator('h1 .outcome.failed').waitFor()

    await page.getByRole('link', { name: 'Tasks', exact: true }).first().click()
    await page.getByRole('link', { name: asks }).click()
    await page.getByRole('button', { name: 'Cancel', exact: true }).click()
    await page.getByRole('button', { name: 'Yes, cancel it' }).click()
    await page.getByText(`Task ${asks} is cancelled.`).waitFor()
    await page.locator('h1 .outcome.cancelled').waitFor()
    expect((await runAxe(page)).violations).toEqual([])
    expect((await send(server, 'tasks/get', { taskId: asks })).result).toMatchObject({ status: 'cancelled' })
    await page.getByRole('link', { name: 'Log' }).click()
    expect(await page.getByRole('row', { name: /ann/ }).innerText()).toMatch(/ann\s+cancel\s+/)
    expect(browser.problems.splice(0)).toEqual([])
  })

  it('says that the store is away, and continues when it is back', async () => {
    const { page } = browser
    await page.getByRole('link', { name: 'Tasks', exact: true }).click()
    await page.getByRole('link', { name: failed }).waitFor()
    renameSync(database.file, `${database.file}.away`)
    await page.getByRole('alert').filter({ hasText: 'No such file' }).waitFor()
    await page.getByRole('link', { name: failed }).waitFor()
    renameSync(`${database.file}.away`, database.file)
    await page.getByRole('alert').waitFor({ state: 'detached' })
    // No other origin was asked for anything, and no address has the token.
    const { origin, hash } = new URL(page.url())
    const [token = ''] = hash.slice(1).split('/')
    const asked = browser.requests.filter((url) => url.startsWith('http'))
    expect(asked.length).toBeGreaterThan(5)
    expect(asked.filter((url) => !/^http:\/\/127\.0\.0\.1:/.test(url))).toEqual([])
    expect(asked.filter((url) => new URL(url).pathname.includes(token) || url.includes(`?`))).toEqual([])
    expect(origin).toMatch(/^http:\/\/127\.0\.0\.1:/)
  })
})
