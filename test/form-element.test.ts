/** `<rondo-form>` in a real browser, under a policy that allows one script and no inline style. Needs the build, and chromium. */

import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { resolve } from 'node:path'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { workItems } from '../examples/08-custom-rules.ts'
import { defineFormElement, type FormAnswer } from '../packages/rondo/src/form-element.ts'
import { HAS_BROWSER, openBrowser, runAxe, type TestBrowser } from './support/browser.ts'

async function bundle(contents: string, minify = false): Promise<string> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: process.cwd() },
    bundle: true,
    platform: 'browser',
    format: 'esm',
    minify,
    write: false,
    tsconfigRaw: {},
    alias: {
      'rondo/client': resolve('packages/rondo/dist/client.browser.js'),
      'rondo/form-element': resolve('packages/rondo/dist/form-element.js'),
    },
  })
  return outputFiles[0]?.text ?? ''
}

/** The answers of the page, as it reports them. */
const SCRIPT = `
  import { askInPage, defineFormElement } from 'rondo/form-element'
  import { resolveInPage } from './examples/client-page.ts'
  defineFormElement()
  defineFormElement()
  Object.assign(document.body.style, { background: 'Canvas', color: 'CanvasText' })
  Object.assign(window, { resolveInPage, askInPage })
  window.show = (question) => {
    window.answers = []
    const form = document.createElement('rondo-form')
    form.addEventListener('answer', ({ detail }) => window.answers.push(detail))
    form.question = question
    document.querySelector('main').replaceChildren(form)
  }
`

const PAGE =
  '<!doctype html><html lang="en"><head><meta name="color-scheme" content="light dark"><title>Host</title></head>' +
  '<body><main></main><script type="module" src="/page.js"></script></body></html>'
const POLICY = "default-src 'none'; script-src 'self'; connect-src http://127.0.0.1:*"

it('says where it belongs if there is no page', () => {
  expect(() => defineFormElement()).toThrow('defineFormElement needs a browser')
})

it('weighs at most 8 kB, compressed, and turns no text into markup', async () => {
  const text = await bundle("export * from 'rondo/form-element'", true)
  expect(text.length).toBeGreaterThan(5_000)
  expect(gzipSync(text).length).toBeLessThan(8 * 1024)
  expect(text).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|href/)
})

describe.skipIf(!HAS_BROWSER)('<rondo-form>', () => {
  let browser: TestBrowser
  let web: Server
  let origin = ''

  beforeAll(async () => {
    const script = await bundle(SCRIPT)
    web = createServer((request, response) => {
      const isScript = request.url === '/page.js'
      response.writeHead(request.url === '/favicon.ico' ? 204 : 200, {
        'Content-Type': isScript ? 'text/javascript' : 'text/html; charset=utf-8',
        'Content-Security-Policy': POLICY,
      })
      response.end(isScript ? script : PAGE)
    })
    await new Promise<void>((listening) => web.listen(0, '127.0.0.1', listening))
    origin = `http://127.0.0.1:${(web.address() as AddressInfo).port}`
    browser = await openBrowser()
  })
  afterAll(async () => {
    await browser?.close()
    web?.close()
  })
  beforeEach(async () => {
    browser.problems.length = 0
    await browser.page.goto(origin)
  })

  const show = (properties: object, required: readonly string[] = [], message = 'How was it resolved?') =>
    browser.page.evaluate(
      `show(${JSON.stringify({
        server: 'http://127.0.0.1:3000/mcp',
        message,
        requestedSchema: { type: 'object', properties, required },
      })})`,
    )
  const answers = (): Promise<FormAnswer[]> => browser.page.evaluate('answers')
  const click = (name: string) => browser.page.getByRole('button', { name, exact: true }).click()

  const ALL = {
    note: { type: 'string', title: 'Note', description: 'For the log', minLength: 3, maxLength: 20 },
    story: { type: 'string', maxLength: 5_000 },
    mail: { type: 'string', format: 'email' },
    site: { type: 'string', format: 'uri' },
    day: { type: 'string', format: 'date' },
    time: { type: 'string', format: 'date-time' },
    weight: { type: 'number', minimum: -1, maximum: 2 },
    count: { type: 'integer', minimum: 0 },
    urgent: { type: 'boolean' },
    state: { type: 'string', enum: ['open', 'closed'], enumNames: ['Open', 'Closed'] },
    country: { type: 'string', enum: Array.from({ length: 20 }, (_, i) => `country ${i}`) },
    tags: { type: 'array', items: { type: 'string', enum: ['a', 'b', 'c'] }, minItems: 1, maxItems: 2 },
  }

  it('reads every kind of field, with the values in the types of the schema', async () => {
    await show(ALL, Object.keys(ALL))
    const { page } = browser
    await page.getByLabel('Note').fill('Done')
    await page.getByLabel('Story').fill('One\nTwo')
    await page.getByLabel('Mail').fill('ada@example.org')
    await page.getByLabel('Site').fill('https://example.org/a')
    await page.getByLabel('Day').fill('2026-07-28')
    await page.getByLabel('Time').fill('2026-07-28 09:30Z')
    await page.getByLabel('Weight').fill('-0.5')
    await page.getByRole('textbox', { name: 'Count' }).fill('7')
    await page.getByRole('radiogroup', { name: 'Urgent' }).getByLabel('No').check()
    await page.getByLabel('Closed').check()
    await page.getByLabel('Country').selectOption({ label: 'country 7' })
    await page.getByLabel('b', { exact: true }).check()
    await page.getByLabel('c', { exact: true }).check()
    await click('Send')
    expect(await answers()).toEqual([
      {
        action: 'accept',
        content: {
          ...{ note: 'Done', story: 'One\nTwo', mail: 'ada@example.org', site: 'https://example.org/a' },
          ...{ day: '2026-07-28', time: '2026-07-28T09:30:00Z', weight: -0.5, count: 7, urgent: false },
          ...{ state: 'closed', country: 'country 7', tags: ['b', 'c'] },
        },
      },
    ])
    expect(browser.problems).toEqual([])
  })

  it('leaves optional fields out, and sends defaults as they are shown', async () => {
    await show({
      ...ALL,
      count: { type: 'integer', default: 3 },
      urgent: { type: 'boolean', default: true },
      tags: { ...ALL.tags, default: ['a'] },
      day: { type: 'string', format: 'date', default: '0000-01-01' },
      lines: { type: 'string', default: 'one\ntwo' },
    })
    await click('Send')
    expect(await answers()).toEqual([
      {
        action: 'accept',
        content: { count: 3, urgent: true, tags: ['a'], day: '0000-01-01', lines: 'one\ntwo' },
      },
    ])
  })

  it('sends a choice whose value is empty, which is not the same as no choice', async () => {
    await show(
      {
        area: {
          type: 'string',
          oneOf: [
            { const: '', title: 'None' },
            { const: ' x', title: 'X' },
          ],
        },
      },
      ['area'],
    )
    await click('Send')
    await browser.page.getByText('Area is required').waitFor()
    await browser.page.getByLabel('None').check()
    await click('Send')
    expect(await answers()).toEqual([{ action: 'accept', content: { area: '' } }])
  })

  it('says what is wrong at the field, moves the focus there, and sends nothing', async () => {
    await show(ALL, ['urgent', 'tags'])
    const { page } = browser
    await page.getByLabel('Note').fill('x')
    await page.getByRole('textbox', { name: 'Count' }).fill('1.5')
    await click('Send')
    const note = page.getByLabel('Note')
    expect(await note.getAttribute('aria-invalid')).toBe('true')
    const described = (await note.getAttribute('aria-describedby'))?.split(' ') ?? []
    const texts = await Promise.all(described.map((id) => page.locator(`#${id}`).textContent()))
    expect(texts).toEqual(['For the log\nEnter 3 to 20 characters.', 'Note must have at least 3 characters'])
    await page.getByText('Count must be a whole number').waitFor()
    await page.getByText('Urgent is required').waitFor()
    await page.getByText('Tags needs at least 1 choice').waitFor()
    expect(await page.evaluate("document.querySelector('rondo-form').shadowRoot.activeElement.id")).toBe('f0')
    expect(await answers()).toEqual([])
    await note.fill('long enough')
    expect(await note.getAttribute('aria-invalid')).toBe('false')
  })

  it('takes a date that was filled in halfway for a mistake, not for no answer', async () => {
    await show({ day: { type: 'string', format: 'date' } })
    await browser.page.getByLabel('Day').focus()
    await browser.page.keyboard.type('07')
    await click('Send')
    await browser.page.getByText('Day must be a date, such as 2026-07-28').waitFor()
    expect(await answers()).toEqual([])
  })

  it('can be used with the keyboard alone', async () => {
    await show({ name: { type: 'string' }, sure: { type: 'boolean' } }, ['name', 'sure'])
    const { keyboard } = browser.page
    for (const key of ['Tab', 'A', 'Tab', 'Space', 'ArrowDown', 'Enter']) await keyboard.press(key)
    expect(await answers()).toEqual([{ action: 'accept', content: { name: 'A', sure: false } }])
  })

  it.each([
    ['Decline', 'decline'],
    ['Not now', 'cancel'],
  ])('reports %s once, whatever was typed', async (button, action) => {
    await show(ALL, Object.keys(ALL))
    await click(button)
    await browser.page.evaluate(
      "document.querySelector('rondo-form').shadowRoot.querySelector('form').requestSubmit()",
    )
    expect(await answers()).toEqual([{ action }])
    expect(await browser.page.getByRole('button', { name: 'Send' }).isDisabled()).toBe(true)
  })

  it('asks for a yes or a no if the form has no fields', async () => {
    await show({}, [], 'Delete it?')
    await click('Yes')
    expect(await answers()).toEqual([{ action: 'accept', content: {} }])
  })

  it.each(['light', 'dark'] as const)(
    'has no accessibility problem that axe finds, in %s',
    async (colorScheme) => {
      await browser.page.emulateMedia({ colorScheme })
      await show(ALL, ['note', 'urgent', 'tags', 'country'])
      await click('Send')
      const { violations, passes } = await runAxe(browser.page, ['wcag2a', 'wcag2aa', 'wcag21aa'])
      expect(violations).toEqual([])
      expect(passes).toBeGreaterThan(10)
      // Control: axe looks inside the element.
      await browser.page.evaluate(
        "document.querySelector('rondo-form').shadowRoot.querySelector('label').removeAttribute('for')",
      )
      expect((await runAxe(browser.page, ['label'])).violations.length).toBe(1)
    },
  )

  const HOSTILE = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>javascript:window.hit=1'

  it('shows markup and script URLs of the server as text', async () => {
    await show(
      {
        [`"><b id=own>${HOSTILE}`]: {
          type: 'string',
          title: HOSTILE,
          description: HOSTILE,
          default: HOSTILE,
        },
        pick: { type: 'string', oneOf: [{ const: HOSTILE, title: HOSTILE }] },
        many: { type: 'array', items: { type: 'string', enum: [HOSTILE] } },
        odd: { type: HOSTILE },
      },
      [],
      HOSTILE,
    )
    await browser.page.getByRole('radio', { name: 'window.hit' }).check()
    const tags = await browser.page.evaluate(
      "[...document.querySelector('rondo-form').shadowRoot.querySelectorAll('img,script,a,#own,[onerror]')].length",
    )
    expect(tags).toBe(0)
    await click('Send')
    expect((await answers())[0]).toEqual({
      action: 'accept',
      content: { [`"><b id=own>${HOSTILE}`]: HOSTILE, pick: HOSTILE },
    })
    expect(await browser.page.evaluate('window.hit')).toBeUndefined()
    expect(browser.problems).toEqual([])
  })

  it('shows no control characters, and suggests nothing that cannot be shown', async () => {
    await show(
      { note: { type: 'string', title: 'No\u202ete\u200b', default: 'pay\u202e 100' } },
      [],
      'Pay \u202e001\u202c \u0007euros\u{e0041}',
    )
    const text = await browser.page.evaluate<string>(
      "document.querySelector('rondo-form').shadowRoot.textContent",
    )
    expect(text).toContain('Pay 001 euros')
    expect(text).toContain('was left out')
    for (const hidden of '\u202e\u202c\u200b\u0007\u{e0041}') expect(text).not.toContain(hidden)
    await click('Send')
    expect(await answers()).toEqual([{ action: 'accept', content: {} }])
  })

  it('draws two thousand of ten thousand options, says so, and lets other choices be typed', async () => {
    const options = Array.from({ length: 10_000 }, (_, i) => `option ${i}`)
    const many = { type: 'array', items: { type: 'string', enum: options } }
    await show({
      one: { type: 'string', enum: options },
      many,
      third: { type: 'string', enum: options },
      fourth: many,
    })
    const { page } = browser
    await page.getByText('One: only 1000 of 10000 choices are shown').waitFor()
    await page.getByText('Enter one of: option 0, option 1,').waitFor()
    await page.getByLabel('One').selectOption({ label: 'option 999' })
    await page.getByRole('checkbox', { name: 'option 999' }).check()
    await page.getByLabel('Third').fill('option 10000')
    await page.getByLabel('Fourth').fill('option 7, option 8')
    await click('Send')
    await page.getByText('Third must be one of').waitFor()
    await page.getByLabel('Third').fill('Option 998')
    await click('Send')
    expect(await answers()).toEqual([
      {
        action: 'accept',
        content: {
          one: 'option 999',
          many: ['option 999'],
          third: 'option 998',
          fourth: ['option 7', 'option 8'],
        },
      },
    ])
  })

  it('keeps names of prototypes out, and takes names of their methods for names', async () => {
    const properties = '{"__proto__":{"type":"string","default":"x"},"toString":{"type":"string"}}'
    await browser.page.evaluate(
      `show({ message: 'm', requestedSchema: JSON.parse('{"type":"object","properties":${properties}}') })`,
    )
    await browser.page.getByText('has a name that cannot be used').waitFor()
    await browser.page.getByLabel('To string').fill('y')
    await click('Send')
    expect(await browser.page.evaluate('JSON.stringify(answers)')).toBe(
      '[{"action":"accept","content":{"toString":"y"}}]',
    )
    expect(await browser.page.evaluate('({}).x')).toBeUndefined()
  })

  it.each([
    ['no schema', undefined],
    ['a text', 'x'],
    ['null properties', { properties: null }],
    ['a field that is null', { properties: { a: null } }],
  ])('draws %s without an error', async (_name, requestedSchema) => {
    await browser.page.evaluate(`show(${JSON.stringify({ message: 'm', requestedSchema })})`)
    await click('Not now')
    expect(await answers()).toEqual([{ action: 'cancel' }])
    expect(browser.problems).toEqual([])
  })

  it('asks again when another question is set, and is empty without one', async () => {
    await show({}, [], 'First?')
    await click('Yes')
    await browser.page.evaluate(
      "document.querySelector('rondo-form').question = { message: 'Second?', requestedSchema: {} }",
    )
    await browser.page.getByText('Second?').waitFor()
    await click('No')
    expect(await answers()).toEqual([{ action: 'accept', content: {} }, { action: 'decline' }])
    await browser.page.evaluate("document.querySelector('rondo-form').question = undefined")
    expect(await browser.page.getByRole('button').count()).toBe(0)
  })

  it('askInPage cancels and removes the form when the call is aborted, before or while it is shown', async () => {
    const ask = (isAborted: boolean) =>
      browser.page.evaluate(`(async () => {
        const stop = new AbortController()
        if (${isAborted}) stop.abort()
        const context = { server: { target: 'memory:' }, signal: stop.signal }
        const asked = askInPage(document.querySelector('main'))({ message: 'm', requestedSchema: {} }, context)
        const shown = document.querySelectorAll('rondo-form').length
        stop.abort()
        return { shown, answer: await asked, left: document.querySelectorAll('rondo-form').length }
      })()`)
    expect(await ask(false)).toEqual({ shown: 1, answer: { action: 'cancel' }, left: 0 })
    expect(await ask(true)).toEqual({ shown: 0, answer: { action: 'cancel' }, left: 0 })
  })

  it('answers the questions of a real server, in a page with askInPage', async () => {
    const items = new Map()
    const rondo = workItems(items, { keys: generateKey('k1'), log: 'off', allowedOrigins: [origin] })
    const mcp = createServer(rondo.nodeHandler())
    await new Promise<void>((listening) => mcp.listen(0, '127.0.0.1', listening))
    try {
      const url = `http://127.0.0.1:${(mcp.address() as AddressInfo).port}/mcp`
      const { page } = browser
      const calling = page.evaluate(`resolveInPage('${url}', document.querySelector('main'))`)
      await page.getByText(url).waitFor()
      await page.getByLabel('Duplicate').check()
      await click('Send')
      await page.getByLabel('Duplicate of id').fill('17')
      await click('Send')
      expect(JSON.stringify(await calling)).toContain('resolved as Duplicate of Bug #17')
      expect(await page.locator('rondo-form').count()).toBe(0)
      expect(items.get(4522)).toEqual({ state: 'Resolved', resolution: 'Duplicate', duplicateOf: 17 })
    } finally {
      mcp.closeAllConnections()
      mcp.close()
      await rondo.close()
    }
  })
})
