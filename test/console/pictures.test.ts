/**
 * The pictures of README and guide, taken from the example server, and what the page costs a browser. In the long form
 * alone: `npm run test:console`. Times are reported, not asserted.
 */

import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { HAS_BROWSER, openBrowser, type TestBrowser } from '../support/browser.ts'
import { type ConsoleProcess, startConsole } from '../support/console-process.ts'

vi.setConfig({ testTimeout: 600_000 })

describe.skipIf(!HAS_BROWSER || !process.env.RONDO_LONG)('the page of the example server', () => {
  let desk: ConsoleProcess
  let browser: TestBrowser
  beforeAll(async () => {
    desk = await startConsole({ path: 'examples/start.ts', instances: 3, args: ['--no-watch'] })
    browser = await openBrowser()
  })
  afterAll(async () => {
    await browser?.close()
    await desk?.stop()
  })

  const shoot = (name: string, height?: number): Promise<unknown> =>
    browser.page.screenshot({
      path: `docs/images/console-${name}.png`,
      ...(height && { clip: { x: 0, y: 0, width: 1280, height } }),
    })

  async function call(tool: string, field: string, value: string): Promise<void> {
    const { page } = browser
    await page.goto('about:blank')
    await page.goto(`${desk.page}/try`)
    await page.getByLabel('Tool', { exact: true }).selectOption(tool)
    await page.getByLabel(field).fill(value)
    if (tool === 'release') await shoot('try', 500)
    await page.getByRole('button', { name: 'Call', exact: true }).click()
  }

  it('paints soon on loopback', async () => {
    const { page } = browser
    const paints: number[] = []
    for (let i = 0; i < 5; i++) {
      await page.goto('about:blank')
      await page.goto(desk.page)
      await page.locator('.instances .up').nth(2).waitFor()
      const paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
      paints.push(Math.round(Number(await page.evaluate(paint))))
    }
    console.log(`First paint after ${paints.join(', ')} ms`)
    expect(Math.min(...paints)).toBeGreaterThan(0)
  })

  it('has its pictures taken', async () => {
    const { page } = browser
    await call('release', 'Version', '2.0.0')
    await page.locator('.message', { hasText: 'Where should 2.0.0 go?' }).waitFor()
    await shoot('question')
    await page.getByRole('button', { name: /^Kill instance/ }).click()
    await page.locator('li[data-kind=kill]').waitFor()
    await page.getByLabel('Channel').selectOption('stable')
    await page.getByRole('button', { name: 'Answer' }).click()
    await page.locator('.message', { hasText: 'Publish 2.0.0' }).waitFor()
    await page.getByRole('button', { name: 'Flip a byte' }).click()
    await page.locator('li.ok[data-kind=flip]').waitFor()
    await page.getByRole('checkbox').first().check()
    await page.getByRole('button', { name: 'Answer' }).click()
    await page.locator('h1 .outcome.complete').waitFor()
    await page.evaluate('scrollTo(0, 0)')
    await page.mouse.move(0, 0)
    await shoot('flow')
    await page.getByRole('button', { name: /^Start instance/ }).click()
    await call('follow_up', 'Id', '7')
    await page.getByRole('heading', { name: /^follow_up/ }).waitFor()
    await call('report', 'Year', '2026')
    await page.getByRole('heading', { name: /^report/ }).waitFor()
    await page.getByRole('link', { name: 'Tasks' }).first().click()
    await page.locator('.task.sleeping').waitFor()
    await page.locator('.task.running').waitFor()
    await shoot('tasks', 520)
  })

  it('scrolls through 10,000 flows', async () => {
    const { page } = browser
    const at = Date.now() - 3_600_000
    const events = Array.from({ length: 10_000 }, (_, i) => ({
      ...{ seq: i + 1, at: at + i, kind: 'round', instance: 'ABC'[i % 3], exchange: `x${i}` },
      round: {
        ...{ event: 'round', flow: `flow-${i}`, round: 1, method: 'tools/call', target: 'book' },
        ...{ outcome: 'complete', replayed: 0, executed: 1, ms: 5 },
      },
      operations: [],
    }))
    let body = events.map((event) => `id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`).join('')
    await page.route('**/api/events', (route) => {
      const sent = body
      body = ':\n\n'
      return route.fulfill({ status: 200, contentType: 'text/event-stream', body: sent })
    })
    await page.goto('about:blank')
    await page.goto(desk.page)
    await page.getByText('10000 of 10000').waitFor()
    // Only the rows in sight are in the document.
    expect(await page.locator('a.row').count()).toBeLessThan(100)
    // From the beginning of a frame until the browser has time for something else.
    const frames = (await page.evaluate(`new Promise((done) => {
      const list = document.querySelector('.list')
      const times = []
      const { port1, port2 } = new MessageChannel()
      let began = 0
      port1.onmessage = () => {
        times.push(performance.now() - began)
        if (times.length < 400) requestAnimationFrame(step)
        else done(times)
      }
      const step = () => {
        began = performance.now()
        list.scrollTop += 97
        port2.postMessage(0)
      }
      requestAnimationFrame(step)
    })`)) as number[]
    frames.sort((a, b) => a - b)
    const at50 = frames[Math.floor(frames.length / 2)] ?? 0
    const at95 = frames[Math.floor(frames.length * 0.95)] ?? 0
    console.log(`10,000 flows: median frame ${at50.toFixed(1)} ms, 95th percentile ${at95.toFixed(1)} ms`)
    expect(frames.length).toBe(400)
    await page.unroute('**/api/events')
  })
})
