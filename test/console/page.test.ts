/** The page of the console in a real browser. Needs the build, and chromium. */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { Client as OfficialClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { connect } from 'rondo/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ConsoleEvent } from '../../packages/cli/src/console/event.ts'
import { HAS_BROWSER, openBrowser, runAxe, serveEvents, type TestBrowser } from '../support/browser.ts'
import { type ConsoleProcess, deskSource, startConsole } from '../support/console-process.ts'

vi.setConfig({ testTimeout: 300_000 })

/** `npm run test:console`: everything, everywhere. */
const IS_LONG = Boolean(process.env.RONDO_LONG)

it.each([
  ['a server', ['index.html', 'console.js', 'console.css'], 40],
  ['a store', ['store.html', 'store.js', 'console.css'], 20],
] as const)('the page of %s loads %j, compressed at most %d kB', (_of, names, most) => {
  const files = names.map((name) => readFileSync(`packages/cli/dist/console/${name}`))
  const bytes = files.reduce((sum, file) => sum + gzipSync(file).length, 0)
  expect(bytes).toBeGreaterThan(5_000)
  expect(bytes).toBeLessThanOrEqual(most * 1024)
})

it('the page has no innerHTML, eval or other way to turn text into markup', () => {
  const scripts = ['console.js', 'store.js'].map((name) =>
    readFileSync(`packages/cli/dist/console/${name}`, 'utf8'),
  )
  const sources = readdirSync('packages/cli/console').filter((name) => /\.tsx?$/.test(name))
  expect(sources.length).toBeGreaterThan(8)
  for (const name of sources) {
    const text = readFileSync(`packages/cli/console/${name}`, 'utf8')
    expect(text).not.toMatch(
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|eval\(|new Function/,
    )
  }
  for (const script of scripts)
    expect(script).not.toMatch(/insertAdjacentHTML|document\.write|eval\(|new Function/)
})

/** The row that has the focus. */
const FOCUSED_ROW = "document.activeElement.closest('li[data-key]')?.dataset.key"

/** The space between neighbouring rows, in pixels. */
const GAPS = `(list) => {
  const boxes = [...list.querySelectorAll('li')].map((row) => [Number(row.ariaPosInSet), row.getBoundingClientRect()])
  return boxes.flatMap(([at, box], i) => {
    const next = boxes[i + 1]
    return next && next[0] === at + 1 ? [next[1].top - box.bottom] : []
  })
}`

/** A flow, a task and a finding that differ from all others. */
function longEvents(i: number): ConsoleEvent[] {
  const at = Date.now() - 3_600_000 + i
  const text = `warning ${i} ${'which takes more than one line '.repeat(i % 7)}`
  return [
    {
      ...{ seq: 3 * i + 1, at, kind: 'round', instance: 'A', exchange: `long-${i}`, operations: [] },
      round: {
        ...{ event: 'round', flow: `flow-${i}`, round: 1, method: 'tools/call', target: `tool-${i}` },
        ...{ outcome: 'complete', replayed: 0, executed: 1, ms: 5 },
      },
    },
    {
      ...{ seq: 3 * i + 2, at, kind: 'stored' },
      task: {
        ...{ id: `task-${i}`, status: 'completed', createdAt: at, updatedAt: at, expiresAt: at, failures: 0 },
        ...{ openKeys: [], entries: i, owner: { tenant: '', principal: 'somebody' } },
      },
    },
    { ...{ seq: 3 * i + 3, at, kind: 'log', instance: 'A' }, event: { event: 'warning', message: text } },
  ] as unknown as ConsoleEvent[]
}

describe.skipIf(!HAS_BROWSER)('in a browser', () => {
  let desk: ConsoleProcess
  let browser: TestBrowser
  beforeAll(async () => {
    desk = await startConsole({ instances: 3, args: ['--no-watch'] })
    browser = await openBrowser()
    await browser.page.goto(desk.page)
  })
  afterAll(async () => {
    await browser?.close()
    await desk?.stop()
  })

  const open = async (view: string): Promise<void> => {
    await browser.page.getByRole('link', { name: view, exact: false }).first().click()
  }

  async function call(tool = 'book'): Promise<void> {
    const { page } = browser
    await open('Try')
    await page.getByLabel('Tool', { exact: true }).selectOption(tool)
    await page.getByRole('button', { name: 'Call', exact: true }).click()
  }

  /** Begins a call in the page; the page shows its flow. */
  async function begin(): Promise<void> {
    await call()
    await browser.page.getByRole('heading', { name: /^book/ }).waitFor()
    await browser.page.locator('.message', { hasText: 'Which room?' }).waitFor()
  }

  async function answer(room: string, label = 'Answer'): Promise<void> {
    const { page } = browser
    const card = page
      .locator('form.card')
      .filter({ has: page.getByRole('button', { name: label }) })
      .last()
    await card.getByLabel('Room').selectOption(room)
    await card.getByRole('button', { name: label }).click()
  }

  async function confirm(label = 'Yes'): Promise<void> {
    await browser.page.getByRole('button', { name: label, exact: true }).click()
  }

  /** Chooses a round to fork from. */
  async function fork(round: number): Promise<void> {
    const select = browser.page.getByLabel('Fork from a round')
    const option = select.locator('option', { hasText: `Round ${round} ` }).first()
    await select.selectOption((await option.getAttribute('value')) ?? '')
    await browser.page.getByRole('button', { name: 'Fork with this answer' }).first().waitFor()
  }

  const happened = (kind: string): Promise<string> =>
    browser.page.locator(`li.ok[data-kind=${kind}]`).first().innerText()

  it('answers a question in the page, and shows what was replayed', async () => {
    const { page } = browser
    await begin()
    await answer('red')
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
    // A confirmation is answered by a button, and nothing is chosen beforehand.
    expect(await page.locator('form.card input').count()).toBe(0)
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
    expect(await page.getByRole('region', { name: 'Result' }).innerText()).toContain('Booked red')
    const row = page.getByRole('row', { name: /^price/ })
    expect(await row.innerText()).toMatch(/ran[\s\S]*replayed[\s\S]*replayed/)
    expect(await page.getByRole('row', { name: /^pay/ }).innerText()).toMatch(
      /not reached[\s\S]*ran[\s\S]*key [0-9a-f]{8}/,
    )
    expect(await page.getByRole('row', { name: /^pay/ }).innerText()).toContain('server.mjs:')
  })

  it('kills the instance between question and answer, and the call completes on another', async () => {
    const { page } = browser
    await begin()
    // One click.
    await page.getByRole('button', { name: /^Kill instance/ }).click()
    await page.locator('#expect-kill', { hasText: 'is gone' }).waitFor()
    const dead = page.getByRole('button', { name: /^Instance . is down$/ })
    expect(await dead.getAttribute('aria-disabled')).toBe('true')
    await answer('blue')
    expect(await happened('kill')).toMatch(
      /Happened: Round 2 on .: executed 0, replayed 1, input_required\. ✓/,
    )
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
    await page.getByRole('button', { name: /^Start instance/ }).click()
    await expect.poll(() => page.locator('.instances .up').count()).toBe(3)
  })

  it('flips a byte, and shows the refusal with its reason', async () => {
    const { page } = browser
    await begin()
    await page.getByRole('button', { name: 'Flip a byte' }).click()
    expect(await happened('flip')).toMatch(/Happened: Refused: (commitment|tag)\. ✓/)
    await page.getByRole('button', { name: 'Send as somebody else' }).click()
    expect(await happened('principal')).toContain('Refused: principal')
    await page.getByRole('button', { name: 'Let it expire' }).click()
    expect(await happened('expire')).toMatch(/Refused: (flow-)?expired/)
    // One text for all of them, so that none lies upon another.
    expect(await page.locator('.lanes .mark').count()).toBe(1)
    expect(await page.locator('.lanes .mark').textContent()).toMatch(/flip.*caller.*expired/)
  })

  it('shows the error first, and marks an effect that threw as thrown', async () => {
    const { page } = browser
    await call('break')
    await page.getByRole('button', { name: 'No', exact: true }).click()
    await page.getByRole('region', { name: 'Result' }).waitFor()
    expect(await page.getByRole('region', { name: 'Result' }).innerText()).toContain('Nothing is broken')
    await call('break')
    await confirm()
    const error = page.getByRole('region', { name: 'Error' })
    await error.waitFor()
    await expect.poll(() => error.innerText()).toContain('no matches')
    expect(await page.getByRole('row', { name: /^burn/ }).innerText()).toMatch(/threw/)
    expect(await page.getByRole('row', { name: /^burn/ }).locator('.ran').count()).toBe(0)
  })

  it('shows what a task waits for, and delivers an event to its hook', async () => {
    const { page } = browser
    await call('charge')
    await page.locator('h1 .outcome.held').waitFor()
    const says = page.locator('.deeds .empty').first()
    expect(await says.innerText()).toContain('waits for its client to ask for it')
    await open('Tasks')
    const task = page.locator('.tasks > li').first()
    await task.getByRole('button', { name: 'Poll' }).click()
    await task.locator('.outcome.waiting').waitFor()
    await expect
      .poll(() => task.locator('.waits').innerText())
      .toMatch(/^the event paid, \d+ min \d+ s left$/)
    await task.getByLabel('Event, as JSON').fill('{ "amount": 5')
    await task.getByRole('button', { name: 'Deliver to paid' }).click()
    await task.getByText('This is not JSON').waitFor()
    await task.getByLabel('Event, as JSON').fill('{ "amount": 5 }')
    await task.getByRole('button', { name: 'Deliver to paid' }).click()
    await task.locator('.outcome.completed').waitFor()
    await task.getByText('Paid 5').waitFor()
    await task.getByRole('link', { name: 'its flow' }).click()
    expect(await page.getByRole('region', { name: 'Result' }).innerText()).toContain('Paid 5')
    const names = await page.locator('.journal thead th').allInnerTexts()
    const turns = names.filter((name) => name.startsWith('Turn'))
    expect([turns.length > 1, new Set(turns).size]).toEqual([true, turns.length])
  })

  it('shows the journal and the status of a task while it runs', async () => {
    const { page } = browser
    await call('count')
    await page.locator('.end', { hasText: /Turn 1 runs on . now: counting/ }).waitFor()
    await page.locator('h1 .outcome.running').waitFor()
    await page.getByText(/The task runs on . now\./).waitFor()
    await expect.poll(() => page.getByRole('row', { name: /^first/ }).innerText()).toMatch(/ran/)
    expect(await page.getByRole('row', { name: /^second/ }).innerText()).toMatch(/running/)
    writeFileSync(join(desk.folder, 'enough'), '')
    await page.locator('h1 .outcome.complete').waitFor()
    await page.getByRole('region', { name: 'Result' }).waitFor()
    expect(await page.getByText('running').count()).toBe(0)
  })

  it('shows the flow of a task that was cancelled as cancelled', async () => {
    const { page } = browser
    await call('remind')
    await page.locator('h1 .outcome.sleeping').waitFor()
    await open('Tasks')
    await page.locator('.tasks > li').first().getByRole('button', { name: 'Cancel the task' }).click()
    await page.locator('.tasks > li').first().locator('.outcome.cancelled').waitFor()
    await page.locator('.tasks > li').first().getByRole('link', { name: 'its flow' }).click()
    await page.locator('h1 .outcome.cancelled').waitFor()
    expect(await page.getByRole('region', { name: 'Error' }).innerText()).toContain('was cancelled')
  })

  it('closes the message about an instance, and has room for the view on a phone', async () => {
    const { page } = browser
    await desk.act('kill', { instance: 'B' })
    await page.locator('.notice', { hasText: 'Instance B is gone' }).waitFor()
    await page.getByRole('button', { name: 'Close this message' }).click()
    await page.locator('.notice').waitFor({ state: 'detached' })
    await desk.act('start', { instance: 'B' })
    await page.setViewportSize({ width: 390, height: 844 })
    await open('Tasks')
    const main = "document.querySelector('main').getBoundingClientRect().top"
    await expect.poll(() => page.evaluate(main)).toBeLessThan(844 / 5)
    // Nothing is wider than the page.
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390)
    await page.setViewportSize({ width: 1280, height: 900 })
  })

  it('loses a reply, and shows the same effect key', async () => {
    const { page } = browser
    await begin()
    await answer('red')
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
    await page.getByRole('button', { name: 'Lose the next reply' }).click()
    await page.locator('li[data-kind=lose]').waitFor()
    await confirm()
    await expect
      .poll(() => page.locator('li[data-kind=answer]').first().innerText())
      .toContain('The reply was lost on purpose')
    await fork(2)
    await confirm('Fork with this answer: Yes')
    expect(await happened('lose')).toMatch(/the same effect keys \(pay [0-9a-f]{8}\)\. ✓/)
  })

  it('forks from round 2 with a decline, then from round 1 with another answer, under another effect key', async () => {
    const { page } = browser
    await begin()
    await answer('red')
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
    const keysPaid = async (): Promise<string[]> =>
      (await page.getByRole('row', { name: /^pay/ }).innerText()).match(/key [0-9a-f]{8}/g) ?? []
    await fork(2)
    await page.getByRole('button', { name: 'Decline' }).click()
    expect(await happened('fork')).toMatch(/Happened: Round 3 on .: executed 0, replayed 2/)
    expect(await keysPaid()).toHaveLength(1)
    await fork(1)
    await answer('blue', 'Fork with this answer')
    await page.locator('.message', { hasText: 'Pay 40 for blue?' }).waitFor()
    await confirm()
    await expect.poll(async () => (await keysPaid()).length).toBe(2)
    expect(new Set(await keysPaid()).size).toBe(2)
  })

  it('says beforehand what each action should do, and compares it with what happened', async () => {
    const { page } = browser
    await begin()
    const buttons = page.locator('.breaks button')
    expect(await buttons.count()).toBe(9)
    for (const button of await buttons.all()) {
      const id = await button.getAttribute('aria-describedby')
      expect((await page.locator(`#${id}`).innerText()).length).toBeGreaterThan(20)
    }
    await page.getByRole('button', { name: 'Reword the question' }).click()
    await page.locator('#expect-reword', { hasText: 'Armed' }).waitFor()
    await answer('red')
    expect(await happened('reword')).toContain('asked again: room. ✓')
    await page.locator('.message', { hasText: 'Which room? (reworded)' }).waitFor()
    await page.getByRole('button', { name: 'Next round elsewhere' }).click()
    await answer('red')
    expect(await happened('elsewhere')).toMatch(/replayed 1, input_required\. ✓/)
    await page.getByRole('button', { name: 'Deliver twice' }).click()
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
    await confirm()
    expect(await happened('twice')).toMatch(/the same effect keys \(pay [0-9a-f]{8}\)\. ✓/)
    await page.locator('#expect-twice').waitFor({ state: 'detached' })
    expect(await page.locator('.actions .bad').count()).toBe(0)
  })

  it('shows the flow of another host: the official client calls the proxy', async () => {
    const { page } = browser
    const client = new OfficialClient({ name: 'another-host', version: '1.0.0' }, {
      capabilities: { elicitation: { form: {} } },
    } as never)
    client.setRequestHandler('elicitation/create', async (request) => {
      const isRoom = String(request.params.message).includes('room')
      return { action: 'accept', content: isRoom ? { room: 'red' } : { confirm: true } } as never
    })
    await client.connect(new StreamableHTTPClientTransport(new URL(desk.mcp)))
    const result = await client.callTool({ name: 'book', arguments: {} })
    expect(JSON.stringify(result)).toContain('Booked red')
    await client.close()
    await open('Flows')
    await page.getByLabel('Find').fill('another-host')
    await page.locator('a.row').first().click()
    await page.locator('.facts', { hasText: 'another-host' }).waitFor()
  })

  it('is the same after a reload of the page during an open call', async () => {
    const { page } = browser
    await begin()
    await page.reload()
    await page.locator('.message', { hasText: 'Which room?' }).waitFor()
    await answer('blue')
    await page.locator('.message', { hasText: 'Pay 40 for blue?' }).waitFor()
  })

  it('reloads the file during an open call, which completes in the new version', async () => {
    const { page } = browser
    await begin()
    writeFileSync(desk.file, deskSource('Reserved'))
    await page.getByRole('button', { name: 'Reload the server' }).click()
    await page.locator('#expect-reload', { hasText: 'Armed' }).waitFor()
    await answer('blue')
    expect(await happened('reload')).toMatch(
      /Happened: Round 2 on .: executed 0, replayed 1, input_required\. ✓/,
    )
    await page.locator('.message', { hasText: 'Pay 40 for blue?' }).waitFor()
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
    await page.locator('details').last().click()
    await page.locator('pre', { hasText: 'Reserved blue' }).waitFor()
  })

  it('shows a task that sleeps, says when it wakes, and answers what it asks then', async () => {
    const { page } = browser
    await call('remind')
    await open('Tasks')
    const task = page.locator('.tasks > li').first()
    await task.locator('.outcome.sleeping').waitFor()
    expect(await task.locator('.waits').innerText()).toMatch(/^its time, in \d+ s$/)
    await task.locator('.outcome.asks').waitFor()
    expect(await task.locator('.waits').innerText()).toMatch(/^an answer to room, \d+ min \d+ s left$/)
    await task.locator('.message', { hasText: 'Which room now?' }).waitFor()
    await answer('blue')
    await task.locator('.outcome.completed').waitFor()
    await task.getByRole('link', { name: 'its flow' }).click()
    const lanes = page.getByRole('img')
    expect(await lanes.getAttribute('aria-label')).toMatch(/Round 1 on ., task; Turn \d+ on ., sleeping/)
    for (const lane of ['store', 'worker']) expect(await lanes.innerHTML()).toContain(lane)
  })

  it('keeps the rows where they are while somebody reads the list', async () => {
    const { page } = browser
    await open('Flows')
    const first = page.locator('a.row').first()
    await first.hover()
    // A busy browser takes note of the pointer a frame later.
    await expect.poll(() => page.evaluate("document.querySelector('.list').matches(':hover')")).toBe(true)
    const before = [await first.getAttribute('href'), await first.boundingBox()]
    const more = page.getByRole('button', { name: /^\d+ new flows?: show$/ })
    await expect
      .poll(
        async () => {
          await page.evaluate(`fetch('/api/calls', { method: 'POST', body: '{"name":"book"}',
            headers: { authorization: 'Bearer ${desk.token}', 'content-type': 'application/json' } })`)
          return more.isVisible()
        },
        { interval: 1_000 },
      )
      .toBe(true)
    expect([await first.getAttribute('href'), await first.boundingBox()]).toEqual(before)
    await more.click()
    await expect.poll(() => first.getAttribute('href')).not.toBe(before[0])
    expect(await first.locator('time').getAttribute('title')).toMatch(/\d{4}/)
  })

  it('paints its frame before its script has come, and its views before the supervisor has said anything', async () => {
    const page = await browser.context.newPage()
    const held: (() => void)[] = []
    await page.route(/console\.js$|\/api\//, (route) => void held.push(() => void route.continue()))
    await page.goto(desk.page, { waitUntil: 'commit' })
    const painted = "performance.getEntriesByName('first-contentful-paint').length"
    await expect.poll(() => page.evaluate(painted)).toBe(1)
    expect(await page.locator('nav').innerText()).toMatch(/Flows\s*Try\s*Tasks\s*Doctor/)
    expect([held.length, await page.locator('nav a').count()]).toEqual([1, 0])
    held.shift()?.()
    await page.getByRole('link', { name: 'Doctor' }).click()
    await page.getByRole('heading', { name: 'Doctor' }).waitFor()
    expect(await page.locator('.instances li').count()).toBe(0)
    await page.close()
  })

  it('has only the rows in sight in the document: of flows, tasks and findings', async () => {
    const { page } = browser
    const count = 3_000
    const events = Array.from({ length: count }, (_, i) => longEvents(i)).flat()
    await page.goto('about:blank')
    const fake = await serveEvents(page, events)
    await page.goto(desk.page)
    await page.getByText(`${count} of ${count}`).waitFor()
    for (const [view, list, last] of [
      ['Flows', 'List of flows', 'tool-0'],
      ['Tasks', 'List of tasks', 'task-0'],
      ['Doctor', 'Findings in the calls so far', 'warning 0 '],
    ] as const) {
      await open(view)
      const box = page.getByLabel(list)
      const rows = box.locator('li')
      await rows.first().waitFor()
      expect([view, await rows.count()]).toEqual([view, expect.toSatisfy((n: number) => n > 5 && n < 80)])
      expect(await rows.first().getAttribute('aria-setsize')).toBe(String(count))
      // The focused row stays in the document, however far the list is scrolled, and though rows are added.
      const stop = rows.nth(1).locator('a, button').first()
      if (view !== 'Doctor') await stop.focus()
      const held = view === 'Doctor' ? '' : String(await rows.nth(1).getAttribute('data-key'))
      const toEnd = `{ const list = document.querySelector('[aria-label="${list}"]'); list.scrollTo(0, list.scrollHeight) }`
      // Rows that turn out higher than they were estimated make the list longer: then to its new end.
      await expect
        .poll(async () => {
          await page.evaluate(toEnd)
          return rows.filter({ hasText: last }).count()
        })
        .toBe(1)
      expect([view, await rows.count()]).toEqual([view, expect.toSatisfy((n: number) => n < 80)])
      if (held !== '') expect(await page.evaluate(FOCUSED_ROW)).toBe(held)
      // No two rows overlap, and none is missing between two.
      const gaps = (await page.evaluate(
        `(${GAPS})(document.querySelector('[aria-label="${list}"]'))`,
      )) as number[]
      expect([view, gaps.length > 3, gaps.filter((gap) => Math.abs(gap) > 1)]).toEqual([view, true, []])
    }
    await open('Tasks')
    const tasks = page.getByLabel('List of tasks')
    await tasks.locator('li').nth(1).getByRole('button', { name: 'Poll' }).focus()
    const before = await page.evaluate(FOCUSED_ROW)
    fake.add(longEvents(count))
    await expect.poll(() => tasks.locator('li').first().getAttribute('data-key')).toBe(`task-${count}`)
    expect(await page.evaluate(FOCUSED_ROW)).toBe(before)
    await fake.stop()
    await page.goto('about:blank')
    await page.goto(desk.page)
  })

  it('examines the server, and leads to the flow that showed a finding', async () => {
    const { page } = browser
    await open('Doctor')
    await page.getByLabel('With the tool').selectOption('book')
    await page.getByRole('button', { name: 'Examine' }).click()
    const list = 'document.querySelector(\'[aria-label="Findings of the examination"]\')'
    await expect.poll(() => page.evaluate(`${list}?.querySelectorAll('li').length ?? 0`)).toBeGreaterThan(10)
    await expect
      .poll(async () => ((await page.evaluate(`(${GAPS})(${list})`)) as number[]).filter((gap) => gap > 1))
      .toEqual([])
    await page.evaluate(`${list}.scrollTo(0, ${list}.scrollHeight)`)
    const tampered = page.locator('.findings li', { hasText: 'state-tampered' })
    expect(await tampered.locator('.outcome').innerText()).toBe('pass')
    await tampered.getByRole('link', { name: 'its flow' }).click()
    await page.getByRole('heading', { name: /^book/ }).waitFor()
  })

  it('has no violation that axe knows in any view, light and dark, narrow and wide', async () => {
    const { page } = browser
    await begin()
    const flow = page.url()
    const show = async (view: string): Promise<void> => {
      if (view === 'flow') await page.goto(flow)
      else await open(view)
      await page.locator('h1').waitFor()
    }
    const views = ['Flows', 'Try', 'Tasks', 'Approvals', 'Doctor', 'flow']
    for (const view of views) {
      await show(view)
      const { violations, passes } = await runAxe(page)
      expect([view, violations]).toEqual([view, []])
      expect(passes).toBeGreaterThan(10)
    }
    // Without motion no colour is measured while it still changes.
    await page.emulateMedia({ colorScheme: 'dark', reducedMotion: 'reduce' })
    for (const view of views) {
      await show(view)
      // Only colours differ.
      const { violations, passes } = await runAxe(page, IS_LONG ? [] : ['color-contrast'])
      expect([view, 'dark', violations, passes > 0]).toEqual([view, 'dark', [], true])
    }
    await page.emulateMedia({ colorScheme: 'light', reducedMotion: null })
    // 640 is a window of 1,280 at a zoom of 200 %.
    for (const width of [360, 640, 2_560]) {
      await page.setViewportSize({ width, height: 800 })
      for (const view of views) {
        await show(view)
        const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth')
        expect([width, view, overflow]).toEqual([width, view, 0])
        if (IS_LONG || (width === 360 && view === 'flow'))
          expect([width, view, (await runAxe(page)).violations]).toEqual([width, view, []])
      }
    }
    await page.setViewportSize({ width: 1280, height: 900 })
  })

  it('axe finds what is wrong with a page that is', async () => {
    const { page } = browser
    await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    expect((await runAxe(page)).violations.join()).toContain('button-name')
    await page.reload()
  })

  describe('with the keyboard alone', () => {
    /** The element that has the focus, and whether its focus is visible. */
    const FOCUS = `(() => {
      const at = document.activeElement
      const { top, bottom } = at.getBoundingClientRect()
      const isShown = at.matches(':focus-visible') && getComputedStyle(at).outlineStyle !== 'none'
      const name = at === document.body ? 'nothing' : at.getAttribute('aria-label') ?? at.textContent
      return { name: name.trim() + ' #' + at.id, isSeen: isShown && bottom > 0 && top < innerHeight }
    })()`
    const focus = async (): Promise<{ name: string; isSeen: boolean }> =>
      (await browser.page.evaluate(FOCUS)) as { name: string; isSeen: boolean }

    async function tabTo(name: RegExp): Promise<void> {
      const seen: string[] = []
      for (let i = 0; i < 90; i++) {
        await browser.page.keyboard.press('Tab')
        const at = await focus()
        seen.push(at.name.slice(0, 40))
        // After the last element comes the browser itself.
        if (!at.name.startsWith('nothing')) expect(at).toEqual({ name: at.name, isSeen: true })
        if (name.test(at.name)) return
      }
      throw new Error(`No way to ${name} with Tab: ${seen.join(' | ')}`)
    }

    async function press(name: RegExp, key = 'Enter'): Promise<void> {
      await tabTo(name)
      await browser.page.keyboard.press(key)
    }

    /** The focus is on the element that had it, or where that element was. */
    const keepsFocus = async (name: RegExp): Promise<void> => {
      await expect.poll(async () => (await focus()).name).toMatch(name)
      expect(await focus()).toMatchObject({ isSeen: true })
    }

    const isThere = (selector: string, hasText?: string | RegExp): Promise<void> =>
      browser.page.locator(selector, { hasText }).first().waitFor()

    /** Only the fragment differs, so the page would keep the focus and the forms of the test before. */
    async function visit(view: string): Promise<void> {
      await browser.page.goto('about:blank')
      await browser.page.goto(`${desk.page}/${view}`)
      await isThere('h1')
    }

    async function callTool(name: string): Promise<void> {
      await press(/^Try/)
      await browser.page.locator('#tool option').first().waitFor({ state: 'attached' })
      await tabTo(/#tool$/)
      await browser.page.keyboard.type(name)
      await press(/^Call #/)
    }

    it('calls, breaks, answers, forks and exports a call, and starts an instance that was killed', async () => {
      const { page } = browser
      await visit('flows')
      await callTool('book')
      await isThere('.message', 'Which room?')
      await keepsFocus(/#main$/)
      await press(/^Flip a byte/)
      await isThere('li.ok[data-kind=flip]')
      await keepsFocus(/^Flip a byte/)
      await press(/^Kill instance/)
      await isThere('li[data-kind=kill]')
      await press(/#.*room$/, 'r')
      await press(/^Answer/)
      await isThere('.message', 'Pay 40 for red?')
      await keepsFocus(/^Question/)
      await press(/^Lose the next reply/)
      await isThere('li[data-kind=lose]')
      await press(/^Yes/)
      await isThere('li[data-kind=answer]', 'The reply was lost on purpose')
      // Round 2: the second choice after none.
      await press(/#fork$/, 'ArrowDown')
      await page.keyboard.press('ArrowDown')
      await isThere('form.card', 'Pay 40 for red?')
      await press(/^Fork with this answer: Yes/)
      await isThere('li.ok[data-kind=lose]')
      await isThere('h1 .outcome.complete')
      await keepsFocus(/^Question/)
      const saved = page.waitForEvent('download')
      await press(/^Export as a test/)
      expect((await saved).suggestedFilename()).toBe('book.test.ts')
      await press(/^Start instance/)
      await expect.poll(() => page.locator('.instances .up').count()).toBe(3)
      await keepsFocus(/^Kill . with signal 9/)
    })

    it('answers a task, opens its flow, and examines the server', async () => {
      await visit('flows')
      await callTool('report')
      await isThere('h1', 'report')
      await press(/^Tasks/)
      await isThere('.tasks .outcome.asks')
      await isThere('.tasks .message', 'A report on which room?')
      await press(/#.*room$/, 'b')
      await press(/^Answer/)
      await isThere('.tasks > li:first-child .outcome.completed')
      await keepsFocus(/List of tasks|room/)
      await press(/^its flow/)
      await isThere('h1', 'report')
      await keepsFocus(/#main$/)
      await press(/^Doctor/)
      await press(/^Examine #/)
      await isThere('.findings li', 'state-tampered')
      await keepsFocus(/^Examine #/)
    })

    it('opens a flow from a list that is redrawn meanwhile', async () => {
      const { page } = browser
      await visit('flows')
      await isThere('a.row')
      const first = /(just now|ago) #$/
      await tabTo(first)
      const row = 'document.activeElement.getAttribute("href")'
      const before = await page.evaluate(row)
      const more = page.getByRole('button', { name: /^\d+ new flows?: show$/ })
      const client = await connect(desk.mcp)
      await client.start({ method: 'tools/call', name: 'book', arguments: {} })
      await client.close()
      await more.waitFor()
      expect(await page.evaluate(row)).toBe(before)
      // Back over the list to the button.
      await page.keyboard.press('Shift+Tab')
      await page.keyboard.press('Shift+Tab')
      await keepsFocus(/new flow/)
      await page.keyboard.press('Enter')
      await keepsFocus(/^List of flows/)
      await press(first)
      await isThere('h1', 'book')
      await keepsFocus(/#main$/)
    })

    it.runIf(IS_LONG)('does everything else', async () => {
      const { page } = browser
      await visit('flows')
      await callTool('book')
      await isThere('.message', 'Which room?')
      for (const [name, kind] of [
        [/^Send as somebody else/, 'principal'],
        [/^Let it expire/, 'expire'],
      ] as const) {
        await press(name)
        await isThere(`li.ok[data-kind=${kind}]`)
        await keepsFocus(name)
      }
      for (const [name, kind] of [
        [/^Reword the question/, 'reword'],
        [/^Reload the server/, 'reload'],
        [/^Next round elsewhere/, 'elsewhere'],
      ] as const) {
        if (kind !== 'reword') await callTool('book')
        await isThere('.message', 'Which room?')
        await press(name)
        await isThere(`#expect-${kind}`, 'Armed')
        await press(/#.*room$/, 'r')
        await press(/^Answer/)
        await isThere(`li.ok[data-kind=${kind}]`)
      }
      await press(/^Deliver twice/)
      await press(/^Later/)
      await press(/^Show/)
      await press(/^Yes/)
      await isThere('li.ok[data-kind=twice]')
      await press(/^Drain instance A/)
      await isThere('li[data-kind=drain]')
      await keepsFocus(/^Drain instance A/)
      await expect.poll(() => page.locator('.instances .up').count()).toBe(3)
      await press(/^Kill B with signal 9/)
      await keepsFocus(/^Start instance B/)
      await page.keyboard.press('Enter')
      await expect.poll(() => page.locator('.instances .up').count()).toBe(3)
      for (const [answer, word] of [
        [/^Decline/, 'declined'],
        [/^Cancel/, 'cancelled'],
      ] as const) {
        await callTool('book')
        await isThere('.message', 'Which room?')
        await press(answer)
        await isThere('td', word)
      }
      const saved = page.waitForEvent('download')
      await press(/^Export as JSON/)
      expect((await saved).suggestedFilename()).toBe('book.json')
      await press(/^Round 1 on/)
      await isThere('pre', '"method"')
      await press(/^Flows/)
      await page.keyboard.press('Tab')
      await tabTo(/#$/)
    })
  })

  it('T12 requests nothing but its own origin, reports no violation, and shows nothing without the token', async () => {
    const { page, requests, problems } = browser
    expect(requests.length).toBeGreaterThan(10)
    expect(requests.filter((url) => !url.startsWith(desk.origin) && !url.startsWith('data:'))).toEqual([])
    expect(problems).toEqual([])
    // Negative control: a picture from elsewhere is refused, and that is seen.
    await page.evaluate(
      "document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.1:9/x.png' }))",
    )
    await expect.poll(() => problems.join()).toContain('Content Security Policy')
    await page.goto('about:blank')
    await page.goto(`${desk.origin}/#wrong`)
    await page.getByText('The token in this address is not valid').waitFor()
    expect(await page.locator('.instances li').count()).toBe(0)
  })
})
