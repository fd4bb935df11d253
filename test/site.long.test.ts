/** The documentation's site: it is built without a network, refuses dead links, and works on a phone. */

import { spawnSync } from 'node:child_process'
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { extname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { HAS_BROWSER, openBrowser } from './support/browser.ts'
import { userPages } from './support/check-pages.ts'
import { readRepository } from './support/repository.ts'

const DIST = 'website/dist'
const TYPES: Record<string, string> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
}

// A proxy that refuses every connection stands for a missing network.
const OFFLINE = { HTTP_PROXY: 'http://127.0.0.1:9', HTTPS_PROXY: 'http://127.0.0.1:9' }

const run = (...args: string[]) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    cwd: 'website',
    env: { ...process.env, ...OFFLINE },
    encoding: 'utf8',
  })
  return { status, output: stdout + stderr }
}
const VITEPRESS = 'node_modules/vitepress/bin/vitepress.js'

describe('the site', () => {
  let server: Server
  let origin: string

  beforeAll(async () => {
    if (!existsSync(join('website', VITEPRESS)))
      expect(spawnSync('npm', ['ci', '--prefix', 'website']).status).toBe(0)
    expect(run('pages.js').status).toBe(0)
    const { status, output } = run(VITEPRESS, 'build')
    expect(output).toContain('build complete')
    expect(status).toBe(0)
    server = createServer((request, response) => {
      const { pathname } = new URL(request.url ?? '/', 'http://site')
      const path = pathname === '/' ? '/index.html' : extname(pathname) === '' ? `${pathname}.html` : pathname
      const file = join(DIST, path)
      response.writeHead(existsSync(file) ? 200 : 404, {
        'Content-Type': TYPES[extname(file)] ?? 'text/plain',
      })
      response.end(existsSync(file) ? readFileSync(file) : '')
    }).listen(0, '127.0.0.1')
    await new Promise((done) => server.once('listening', done))
    origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  })

  afterAll(() => void server?.close())

  it('lists every page in llms.txt, as Markdown that exists', () => {
    const list = readFileSync(join(DIST, 'llms.txt'), 'utf8')
    const pages = Array.from(list.matchAll(/\]\((\/[^)]+\.md)\)/g), ([, path = '']) => path)
    expect(pages.length).toBeGreaterThan(40)
    expect(pages.filter((path) => !existsSync(join(DIST, path)))).toEqual([])
    const own = userPages(readRepository()).map(([path]) => path.replace(/^docs/, '').replace(/^(?=\w)/, '/'))
    expect(own.filter((path) => !pages.includes(path))).toEqual(['/README.md', '/README.md'])
  })

  it.skipIf(!HAS_BROWSER)(
    'opens, searches, and leads to the first tool, on the width of a phone',
    async () => {
      const { page, requests, problems, close } = await openBrowser({ width: 390 })
      await page.goto(origin)
      expect(await page.locator('h1').first().textContent()).toContain('Rondo')
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
      await page.locator('.VPNavBarSearch button').click()
      await page.locator('.search-input').fill('idempotency key')
      await page.locator('.results .result').first().waitFor()
      await page.keyboard.press('Escape')
      await page.locator('.vp-doc a[href="/guide/01-first-tool"]').first().click()
      await page.locator('h1:has-text("first tool")').waitFor()
      expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
      expect(requests.filter((url) => !url.startsWith(origin) && !url.startsWith('data:'))).toEqual([])
      expect(problems).toEqual([])
      await close()
    },
  )

  it('is not built with a dead link', () => {
    expect(run('pages.js').status).toBe(0)
    appendFileSync('website/pages/index.md', '\n[nowhere](/guide/nowhere)\n')
    const { status, output } = run(VITEPRESS, 'build')
    expect(output).toContain('/guide/nowhere')
    expect(status).not.toBe(0)
    expect(run('pages.js').status).toBe(0)
  })
})
