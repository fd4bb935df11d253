/** The page of the console in a real browser. Needs the build, and chromium. */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import { Client as OfficialClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { HAS_BROWSER, openBrowser, runAxe, type TestBrowser } from '../support/browser.ts'
import { type ConsoleProcess, deskSource, startConsole } from '../support/console-process.ts'

vi.setConfig({ testTimeout: 300_000 })

it('loads at most 40 kB, compressed', () => {
  const files = ['index.html', 'console.js', 'console.css'].map((name) =>
    readFileSync(`dist/console/${name}`),
  )
  const bytes = files.reduce((sum, file) => sum + gzipSync(file).length, 0)
  expect(bytes).toBeGreaterThan(5_000)
  expect(bytes).toBeLessThanOrEqual(40 * 1024)
})

it('has no innerHTML, eval or other way to turn text into markup', () => {
  const script = readFileSync('dist/console/console.js', 'utf8')
  const sources = readdirSync('console').filter((name) => /\.tsx?$/.test(name))
  expect(sources.length).toBeGreaterThan(8)
  for (const name of sources) {
    const text = readFileSync(`console/${name}`, 'utf8')
    expect(text).not.toMatch(
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|eval\(|new Function/,
    )
  }
  expect(script).not.toMatch(/insertAdjacentHTML|document\.write|eval\(|new Function/)
})

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

  async function confirm(label = 'Answer'): Promise<void> {
    const { page } = browser
    const card = page
      .locator('form.card')
      .filter({ has: page.getByRole('checkbox') })
      .last()
    await card.getByRole('checkbox').check()
    await card.getByRole('button', { name: label }).click()
  }

  const happened = (kind: string): Promise<string> =>
    browser.page.locator(`li.ok[data-kind=${kind}]`).first().innerText()

  it('answers a question in the page, and shows what was replayed', async () => {
    const { page } = browser
    await begin()
    await answer('red')
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
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
    await page.locator('li[data-kind=kill]').first().waitFor()
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
    const [fork] = await page
      .getByLabel('Fork from a round')
      .locator('option')
      .filter({ hasText: 'Round 2' })
      .all()
    await page.getByLabel('Fork from a round').selectOption((await fork?.getAttribute('value')) ?? '')
    await confirm('Fork with this answer')
    expect(await happened('lose')).toMatch(/the same effect keys \(pay [0-9a-f]{8}\)\. ✓/)
  })

  it('forks from a round with another answer, under another effect key', async () => {
    const { page } = browser
    await begin()
    await answer('red')
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
    const [fork] = await page
      .getByLabel('Fork from a round')
      .locator('option')
      .filter({ hasText: 'Round 1' })
      .all()
    await page.getByLabel('Fork from a round').selectOption((await fork?.getAttribute('value')) ?? '')
    await answer('blue', 'Fork with this answer')
    await page.locator('.message', { hasText: 'Pay 40 for blue?' }).waitFor()
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
    const keys = (await page.getByRole('row', { name: /^pay/ }).innerText()).match(/key [0-9a-f]{8}/g)
    expect(keys).toHaveLength(2)
    expect(keys?.[0]).not.toBe(keys?.[1])
  })

  it('forks from round 2, with a decline: what came before is replayed, and nothing is paid', async () => {
    const { page } = browser
    await begin()
    await answer('red')
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
    await confirm()
    await page.locator('h1 .outcome.complete').waitFor()
    const [fork] = await page
      .getByLabel('Fork from a round')
      .locator('option')
      .filter({ hasText: 'Round 2' })
      .all()
    await page.getByLabel('Fork from a round').selectOption((await fork?.getAttribute('value')) ?? '')
    await page.getByRole('button', { name: 'Fork with this answer' }).waitFor()
    await page.getByRole('button', { name: 'Decline' }).click()
    expect(await happened('fork')).toMatch(/Happened: Round 3 on .: executed 0, replayed 2/)
    const row = await page.getByRole('row', { name: /^pay/ }).innerText()
    expect(row.match(/key [0-9a-f]{8}/g)).toHaveLength(1)
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
    expect(await task.locator('.waits').innerText()).toMatch(/^wakes in \d+ s$/)
    await task.locator('.outcome.asks').waitFor()
    expect(await task.locator('.waits').innerText()).toMatch(/^an answer to room, \d+ min \d+ s left$/)
    await task.locator('.message', { hasText: 'Which room now?' }).waitFor()
    await answer('blue')
    await task.locator('.outcome.completed').waitFor()
    await task.getByRole('link', { name: 'its flow' }).click()
    const lanes = page.getByRole('img')
    expect(await lanes.getAttribute('aria-label')).toMatch(/round 1 on ., task; turn \d+ on ., sleeping/)
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

  it('examines the server, and leads to the flow that showed a finding', async () => {
    const { page } = browser
    await open('Doctor')
    await page.getByLabel('With the tool').selectOption('book')
    await page.getByRole('button', { name: 'Examine' }).click()
    const tampered = page.locator('.findings li', { hasText: 'state-tampered' })
    expect(await tampered.locator('.outcome').innerText()).toBe('pass')
    await tampered.getByRole('link', { name: 'its flow' }).click()
    await page.getByRole('heading', { name: /^book/ }).waitFor()
  })

  it('has no violation that axe knows in any view, light and dark, narrow and wide', async () => {
    const { page } = browser
    await begin()
    const flow = page.url()
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme })
      for (const view of ['Flows', 'Try', 'Tasks', 'Doctor', 'flow']) {
        if (view === 'flow') await page.goto(flow)
        else await open(view)
        await page.locator('h1').waitFor()
        const { violations, passes } = await runAxe(page)
        expect([view, colorScheme, violations]).toEqual([view, colorScheme, []])
        expect(passes).toBeGreaterThan(10)
      }
    }
    // 640 is a window of 1,280 at a zoom of 200 %.
    for (const width of [360, 640, 2_560]) {
      await page.setViewportSize({ width, height: 800 })
      for (const view of ['Flows', 'Try', 'Tasks', 'Doctor', 'flow']) {
        if (view === 'flow') await page.goto(flow)
        else await open(view)
        await page.locator('h1').waitFor()
        const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth')
        expect([width, view, overflow]).toEqual([width, view, 0])
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

  it('works with the keyboard alone', async () => {
    const { page } = browser
    // Only the fragment differs, so the page would keep the focus and the forms of the test before.
    await page.goto('about:blank')
    await page.goto(`${desk.page}/try`)
    const tool = page.getByLabel('Tool', { exact: true })
    await tool.locator('option').first().waitFor({ state: 'attached' })
    const tabTo = async (name: RegExp): Promise<void> => {
      for (let i = 0; i < 60; i++) {
        await page.keyboard.press('Tab')
        const text = await page.evaluate(
          "document.activeElement.textContent + ' ' + document.activeElement.id",
        )
        if (name.test(String(text))) return
      }
      throw new Error(`No way to ${name} with Tab`)
    }
    await tabTo(/\btool$/)
    await page.keyboard.press('b')
    await tabTo(/^Call/)
    await page.keyboard.press('Enter')
    await page.locator('.message', { hasText: 'Which room?' }).waitFor()
    await tabTo(/room$/)
    await page.keyboard.press('r')
    await tabTo(/^Answer/)
    await page.keyboard.press('Enter')
    await page.locator('.message', { hasText: 'Pay 40 for red?' }).waitFor()
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
