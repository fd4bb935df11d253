/**
 * The pictures of README and guide, taken from the example server, and what the page costs a browser. In the long form
 * alone: `npm run test:console`. Times are reported, not asserted.
 */

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ConsoleEvent } from '../../packages/cli/src/console/event.ts'
import { HAS_BROWSER, openBrowser, serveEvents, type TestBrowser } from '../support/browser.ts'
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
    // The memory of the browser itself: a page without script and style.
    const plain = createServer((_req, res) => void res.end('<!doctype html><p>Nothing'))
    plain.listen(0, '127.0.0.1')
    await once(plain, 'listening')
    const { port } = plain.address() as AddressInfo
    const paint = async (url: string): Promise<number> => {
      await page.goto('about:blank')
      await page.goto(url)
      const entry = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
      // Not waitForFunction, which evaluates in the page what its policy forbids.
      const painted = async () => Math.round(Number(await page.evaluate(entry)))
      await expect.poll(painted).toBeGreaterThan(0)
      return painted()
    }
    const paints: number[] = []
    const empty: number[] = []
    for (let i = 0; i < 9; i++) {
      empty.push(await paint(`http://127.0.0.1:${port}/`))
      paints.push(await paint(desk.page))
    }
    plain.close()
    const middle = (all: number[]): number => all.toSorted((a, b) => a - b)[4] ?? 0
    console.log(
      `First paint after ${middle(paints)} ms (${paints.join(', ')}); an empty page after ${middle(empty)} ms`,
    )
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
    await page.getByRole('button', { name: 'Yes', exact: true }).click()
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
    await page.goto('about:blank')
    const fake = await serveEvents(page, events as unknown as ConsoleEvent[])
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
    await fake.stop()
  })
})
