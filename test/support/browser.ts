/** A real browser for tests: Debian's chromium, which scripts/ensure-chromium.sh installs. */

import { accessSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type BrowserContext, chromium, type Page } from 'playwright-core'
import type { ConsoleEvent } from '../../packages/cli/src/console/event.ts'

const CHROMIUM: string | undefined = [
  process.env.CHROMIUM ?? '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find((path) => {
  try {
    accessSync(path)
    return true
  } catch {
    return false
  }
})

export const HAS_BROWSER: boolean = CHROMIUM !== undefined

export interface TestBrowser {
  readonly context: BrowserContext
  readonly page: Page
  /** Addresses that a page requested, messages on its console, and violations of its policy. */
  readonly requests: string[]
  readonly problems: string[]
  close(): Promise<void>
}

export async function openBrowser(
  options: { colorScheme?: 'light' | 'dark'; width?: number; javaScriptEnabled?: boolean } = {},
): Promise<TestBrowser> {
  const profile = mkdtempSync(join(tmpdir(), 'rondo-browser-'))
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
    viewport: { width: options.width ?? 1280, height: 900 },
    colorScheme: options.colorScheme ?? 'light',
    javaScriptEnabled: options.javaScriptEnabled ?? true,
  })
  // Generous, as for every test: a busy machine is not a failure.
  context.setDefaultTimeout(120_000)
  const page = context.pages()[0] ?? (await context.newPage())
  const requests: string[] = []
  const problems: string[] = []
  context.on('request', (request) => requests.push(request.url()))
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') problems.push(message.text())
  })
  return {
    ...{ context, page, requests, problems },
    async close() {
      await context.close()
      rmSync(profile, { recursive: true, force: true })
    },
  }
}

const AXE: string = createRequire(import.meta.url).resolve('axe-core')

interface AxeResults {
  readonly violations: readonly {
    readonly id: string
    readonly nodes: readonly { readonly html: string }[]
  }[]
  readonly passes: readonly unknown[]
}

/**
 * The findings of axe on the page: the broken rules with their elements, and how many rules passed. `rules` names the only ones to
 * check; by default all are.
 */
export async function runAxe(
  page: Page,
  rules: readonly string[] = [],
): Promise<{ violations: string[]; passes: number }> {
  // Evaluated by the browser's debugger, which the policy of the page does not govern.
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(readFileSync(AXE, 'utf8'))
  const only = rules.length === 0 ? {} : { runOnly: rules }
  const options = JSON.stringify({ resultTypes: ['violations'], ...only })
  const results = (await page.evaluate(`axe.run(document, ${options})`)) as AxeResults
  return {
    violations: results.violations.map(
      ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`,
    ),
    passes: results.passes.length,
  }
}

/** The events that the page of the console gets in place of those of its supervisor, until `stop`. */
export async function serveEvents(
  page: Page,
  first: readonly ConsoleEvent[],
): Promise<{ add(events: readonly ConsoleEvent[]): void; stop(): Promise<void> }> {
  let waiting = [...first]
  await page.route('**/api/events', (route) => {
    const lines = waiting.map((event) => `id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`)
    waiting = []
    // The page connects again half a second later.
    return route.fulfill({
      status: 200,
      contentType: 'text/event-stream',
      body: `${lines.join('')}:\n\n`,
    })
  })
  return {
    add: (events) => void waiting.push(...events),
    stop: () => page.unroute('**/api/events'),
  }
}
