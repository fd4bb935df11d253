/** Approvals in `rondo console`: the view, and the pages at an origin of their own. Needs the build, and chromium for the last. */

import { request } from 'node:http'
import { connect } from 'rondo/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { DeskReply } from '../../packages/cli/src/console/event.ts'
import { HAS_BROWSER, openBrowser, runAxe } from '../support/browser.ts'
import { type ConsoleProcess, startConsole } from '../support/console-process.ts'

vi.setConfig({ testTimeout: 120_000 })

let desk: ConsoleProcess
let pages: URL
beforeAll(async () => {
  desk = await startConsole({ path: 'examples/approve-deploy.ts', instances: 2, args: ['--no-watch'] })
  pages = new URL(desk.pages[0] ?? '')
}, 120_000)
afterAll(() => desk?.stop())

/** Begins a call, and returns its task and its request. */
async function begin(version: string) {
  const client = await connect(desk.mcp, { tasks: 'poll' })
  const started = await client.start({ method: 'tools/call', name: 'deploy', arguments: { version } })
  const taskId = (started.status === 'complete' ? undefined : started.pending.task?.taskId) ?? ''
  const waiting = async () =>
    (await list()).find((one) => one.state === 'open' && one.message.includes(version))
  await expect.poll(waiting).toBeDefined()
  const asked = await waiting()
  const outcome = async () => JSON.stringify(await client.task(taskId).get())
  return { asked, outcome, id: asked?.id ?? '', close: () => client.close() }
}

async function list() {
  const reply = (await (await desk.get('/api/approvals')).json()) as DeskReply
  return reply.kind === 'requests' ? reply.requests : []
}

const vote = (body: object) =>
  fetch(`${desk.origin}/api/approvals`, {
    method: 'POST',
    headers: { authorization: `Bearer ${desk.token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })

/** The status of a request with these headers, which `fetch` would not send. */
const statusOf = (url: URL, headers: Record<string, string>): Promise<number> =>
  new Promise((done, fail) => {
    const { hostname, port, pathname } = url
    request({ host: hostname, port, path: pathname, headers }, (response) => {
      response.resume()
      done(response.statusCode ?? 0)
    })
      .once('error', fail)
      .end()
  })

describe('the pages', () => {
  it('L1 are served at an origin of their own, and decide', async () => {
    expect(pages.origin).not.toBe(desk.origin)
    expect(pages.pathname).toBe('/approvals')
    const { id, outcome, close } = await begin('1.0.0')
    const page = await (await fetch(`${pages.href}/r/${id}`)).text()
    const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(page) ?? []
    const decided = await fetch(`${pages.href}/r/${id}`, {
      method: 'POST',
      body: new URLSearchParams({ csrf, decision: 'approve' }),
      headers: { origin: pages.origin },
    })
    expect(await decided.text()).toContain('You have approved this.')
    await expect.poll(outcome).toContain('Deployed 1.0.0, approved by Ann.')
    await close()
  })

  it('are neither the MCP endpoint nor the console, and the console has no pages', async () => {
    expect((await fetch(`${pages.origin}/mcp`, { method: 'POST', body: '{}' })).status).toBe(404)
    expect((await fetch(`${pages.origin}/api/status`)).status).toBe(404)
    expect((await fetch(`${pages.origin}/`)).status).toBe(404)
    expect((await desk.get('/approvals')).status).toBe(404)
  })

  it('answer only at their own address, and to no page of another origin', async () => {
    expect(await statusOf(pages, {})).toBe(200)
    expect(await statusOf(pages, { host: `evil.example:${pages.port}` })).toBe(403)
    expect(await statusOf(pages, { origin: desk.origin })).toBe(403)
    expect(await statusOf(pages, { origin: pages.origin })).toBe(200)
  })
})

describe('the view', () => {
  it('L1 lets a member decide under the rules of the page, and nobody else', async () => {
    const { asked, outcome, close } = await begin('2.0.0')
    expect(asked).not.toHaveProperty('hook')
    const { task, key } = asked ?? {}
    const refused = await vote({ task, key, approve: true, as: 'erin' })
    expect(refused.status).toBe(400)
    expect(await refused.text()).toContain('not a member of release-managers')
    expect((await vote({ task, key, approve: false, as: 'ann' })).status).toBe(200)
    await expect.poll(outcome).toContain('denied-not-executed')
    await close()
  })

  it('needs the token', async () => {
    expect((await fetch(`${desk.origin}/api/approvals`)).status).toBe(401)
  })

  it.skipIf(!HAS_BROWSER)('shows a request, decides it with the keyboard, and has no violation', async () => {
    const { outcome, close } = await begin('3.0.0')
    const browser = await openBrowser()
    const { page } = browser
    await page.goto(`${desk.page}/approvals`)
    await page.getByRole('heading', { name: 'Deploy 3.0.0 to production?' }).waitFor()
    const { violations, passes } = await runAxe(page)
    expect(violations).toEqual([])
    expect(passes).toBeGreaterThan(5)
    const href = await page.getByRole('link', { name: 'its page' }).first().getAttribute('href')
    expect(new URL(href ?? '').origin).toBe(pages.origin)
    await page.getByLabel('Decide as').focus()
    await page.keyboard.type('ann')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await expect.poll(outcome).toContain('Deployed 3.0.0')
    expect(browser.problems).toEqual([])
    await browser.close()
    await close()
  })
})
