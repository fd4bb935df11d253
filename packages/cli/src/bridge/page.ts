/**
 * The page on which `rondo bridge` asks a person what the host cannot ask.
 *
 * page 1: It listens on loopback, and answers only requests whose Host is its own address; a form is accepted only from its own
 *         origin.
 * page 2: A question has a random path and a random token in its form. Both appear in the browser and nowhere else. The browser gets
 *         there by a link that works once, because the link is in a command line, which other programs and users can read. The
 *         link is not in a result, and not on stderr unless the browser cannot be opened and there is no other way to ask.
 * page 3: A question is answered once. After that, and when the call has ended, its path does not exist.
 * page 4: The page runs no script. Texts of the server are escaped and shown apart from ours.
 */

import { randomBytes, timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { AskLocally, LocalQuestion } from '@rondo/gateway'
import { type ElicitFormParams, type ElicitUrlParams, type InputResponse, inspectLink } from 'rondo/client'
import { checkForm, type Field, readForm, startValues } from 'rondo/forms'

interface Open {
  readonly question: LocalQuestion
  readonly token: string
  answer(response: InputResponse): void
}

interface PageOptions {
  /** Opens the page of a question in the person's browser. Returns false if there is none. */
  open(url: URL): Promise<boolean>
  /** Asks in another way too, where no browser can be opened. The first answer wins. */
  readonly otherwise?: ClosableAsk
  /** Asks here even what the host can ask. */
  readonly always?: boolean
}

/** A way to ask the person that ends with the bridge. Its open questions are then cancelled. */
export interface ClosableAsk extends AskLocally {
  close(): void
}

const MAX_OPEN = 32
const MAX_BODY = 65_536

export function createAskPage({ open: show, otherwise, always }: PageOptions): ClosableAsk {
  const questions = new Map<string, Open>()
  /** The paths of questions, by links that have not been opened. */
  const links = new Map<string, string>()
  let listening: Promise<{ server: Server; origin: string }> | undefined
  const listen = (): NonNullable<typeof listening> => {
    listening ??= new Promise((resolve, reject) => {
      const server = createServer((request, response) => {
        const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
        serve({ questions, links, host }, request, response).catch(() => {
          if (!response.headersSent) send(response, 400, message('This request cannot be read.'))
        })
      })
      server.unref()
      server.on('error', reject)
      server.listen(0, '127.0.0.1', () =>
        resolve({ server, origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
      )
    })
    return listening
  }
  return {
    kinds: ['form', 'url'],
    always,
    async ask(question) {
      const { origin } = await listen()
      if (questions.size >= MAX_OPEN || question.signal.aborted) return { action: 'cancel' }
      const [path, link] = [randomBytes(24).toString('base64url'), randomBytes(24).toString('base64url')]
      return new Promise<InputResponse>((resolve) => {
        const over = new AbortController()
        const answer = (response: InputResponse): void => {
          questions.delete(path)
          links.delete(link)
          resolve(response)
          over.abort()
        }
        questions.set(path, { question, token: randomBytes(24).toString('base64url'), answer })
        links.set(link, path)
        question.signal.addEventListener('abort', () => answer({ action: 'cancel' }), { once: true })
        const isShown = show(new URL(`/${link}`, origin)).catch(() => false)
        void isShown.then(async (isOpen) => {
          if (!isOpen && otherwise && !over.signal.aborted)
            answer(await otherwise.ask({ ...question, signal: over.signal }))
        })
      })
    },
    close() {
      otherwise?.close()
      for (const { answer } of [...questions.values()]) answer({ action: 'cancel' })
      void listening?.then(({ server }) => {
        server.closeAllConnections()
        server.close()
      })
    },
  }
}

const GONE =
  'This question is no longer open, or its link was opened before: a link works once. You can close this page.'

interface Served {
  readonly questions: ReadonlyMap<string, Open>
  readonly links: Map<string, string>
  readonly host: string
}

async function serve(
  { questions, links, host }: Served,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (request.headers.host !== host)
    return send(response, 403, message('This page is not served at this address.'))
  const path = (request.url ?? '').slice(1)
  const target = request.method === 'GET' ? links.get(path) : undefined
  if (target !== undefined) {
    links.delete(path)
    return send(response, 303, message('The question is on another page.'), { Location: `/${target}` })
  }
  const open = questions.get(path)
  if (open === undefined) return send(response, 404, message(GONE))
  if (request.method === 'GET') return send(response, 200, draw(open))
  if (request.method !== 'POST') return send(response, 405, message('This page takes GET and POST.'))
  if (request.headers.origin !== `http://${host}`)
    return send(response, 403, message('This form was sent by another page.'))
  const sent = await readBody(request)
  if (sent === undefined) return send(response, 413, message('The answer is too long.'))
  if (!isSame(sent.get('token') ?? '', open.token))
    return send(response, 403, message('This form is not the one that was shown.'))
  // It may have been answered while this form arrived.
  if (questions.get(path) !== open) return send(response, 404, message(GONE))
  const action = sent.get('do')
  if (action === 'decline' || action === 'cancel') {
    open.answer({ action })
    return send(response, 200, message('Thank you. You can close this page.'))
  }
  const { request: asked } = open.question
  if (asked.method !== 'elicitation/create' || action !== 'accept')
    return send(response, 400, message('This answer is not one of the possible ones.'))
  if (asked.params.mode === 'url') open.answer({ action: 'accept' })
  else {
    const { fields } = readForm(asked.params.requestedSchema)
    const values = valuesOf(fields, sent)
    const checked = checkForm(fields, values)
    if (!checked.ok)
      return send(
        response,
        422,
        draw(
          open,
          values,
          checked.problems.map(({ message: text }) => text),
        ),
      )
    open.answer({ action: 'accept', content: checked.content })
  }
  send(response, 200, message('Thank you. You can close this page.'))
}

function isSame(a: string, b: string): boolean {
  const [one, two] = [Buffer.from(a), Buffer.from(b)]
  return one.length === two.length && timingSafeEqual(one, two)
}

async function readBody(request: IncomingMessage): Promise<URLSearchParams | undefined> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of request) {
    length += (chunk as Buffer).length
    if (length > MAX_BODY) return undefined
    chunks.push(chunk as Buffer)
  }
  return new URLSearchParams(Buffer.concat(chunks).toString())
}

/** What was typed, by field. A field that was left empty is absent. */
function valuesOf(fields: readonly Field[], sent: URLSearchParams): Record<string, unknown> {
  const values: Record<string, unknown> = {}
  fields.forEach(({ name, type }, index) => {
    const given = sent.getAll(`f${index}`).filter((one) => one !== '')
    if (type === 'choices') values[name] = given
    else if (given[0] !== undefined) values[name] = type === 'boolean' ? given[0] === 'true' : given[0]
  })
  return values
}

const HEADERS = {
  'Content-Type': 'text/html; charset=utf-8',
  'Cache-Control': 'no-store',
  'Content-Security-Policy':
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
  'X-Frame-Options': 'DENY',
  'X-Content-Type-Options': 'nosniff',
  // `no-referrer` would hide the origin of our own form from us.
  'Referrer-Policy': 'same-origin',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
}

function send(
  response: ServerResponse,
  status: number,
  html: string,
  more: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { ...HEADERS, ...more })
  response.end(html)
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}
const escaped = (text: string): string => text.replace(/[&<>"']/g, (one) => ESCAPES[one] ?? '')

const STYLE =
  'body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:3rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}' +
  'blockquote{margin:1rem 0;padding:.5rem 1rem;border-left:.25rem solid #666;white-space:pre-wrap;overflow-wrap:anywhere}' +
  'label,legend{display:block;margin-top:1rem;font-weight:600}input:not([type]),textarea,select{width:100%;padding:.5rem;box-sizing:border-box;font:inherit}' +
  'fieldset{border:0;margin:0;padding:0}small{display:block;color:#555}button{font:inherit;padding:.5rem 1rem;margin:1.5rem .5rem 0 0}.problem{color:#a00}'

function frame(title: string, body: string): string {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escaped(title)}</title><style>${STYLE}</style><main>${body}</main></html>`
}

function message(text: string): string {
  return frame('rondo bridge', `<p>${escaped(text)}</p>`)
}

function draw(
  { question, token }: Open,
  values?: Record<string, unknown>,
  problems: readonly string[] = [],
): string {
  const { upstream, server, target, request } = question
  if (request.method !== 'elicitation/create') return message('This question cannot be shown here.')
  const { params } = request
  const who = server === undefined || server === upstream ? upstream : `${upstream} (${server})`
  const head = `<h1>A question from ${escaped(who)}</h1><p>It was asked for <b>${escaped(target)}</b>. The text below is the server’s.</p><blockquote>${escaped(params.message)}</blockquote>`
  const said = problems.map((one) => `<p class="problem" role="alert">${escaped(one)}</p>`).join('')
  const inner = params.mode === 'url' ? drawLink(params) : drawForm(params, values)
  const buttons =
    '<button name="do" value="accept">Send</button><button name="do" value="decline" formnovalidate>Decline</button><button name="do" value="cancel" formnovalidate>Not now</button>'
  return frame(
    `Question from ${upstream}`,
    `${head}${said}<form method="post"><input type="hidden" name="token" value="${token}">${inner}${buttons}</form>`,
  )
}

function drawLink({ url }: ElicitUrlParams): string {
  const link = inspectLink(url)
  if (link === undefined) return '<p class="problem">The server wants to open a link that is not safe.</p>'
  const warnings =
    link.warnings.length > 0 ? ` <span class="problem">(${escaped(link.warnings.join(', '))})</span>` : ''
  return `<p>The server wants you to open this page of <b>${escaped(link.host)}</b>${warnings}:<br><a href="${escaped(link.url)}" target="_blank" rel="noreferrer noopener">${escaped(link.url)}</a></p><p>Press Send when you have done so.</p>`
}

function drawForm({ requestedSchema }: ElicitFormParams, given?: Record<string, unknown>): string {
  const { fields } = readForm(requestedSchema)
  const values = given ?? startValues(fields)
  const valueAt = (name: string): unknown => (Object.hasOwn(values, name) ? values[name] : undefined)
  return fields.map((field, index) => drawField(field, `f${index}`, valueAt(field.name))).join('')
}

function drawField(
  { title, description, type, required, options = [] }: Field,
  id: string,
  value: unknown,
): string {
  const label = `${escaped(title)}${required ? '' : ' (optional)'}`
  const hint = description === undefined ? '' : `<small>${escaped(description)}</small>`
  const pick = (kind: 'radio' | 'checkbox', one: { value: string; title: string }, on: boolean): string =>
    `<label><input type="${kind}" name="${id}" value="${escaped(one.value)}"${on ? ' checked' : ''}> ${escaped(one.title)}</label>`
  const group = (inner: string): string => `<fieldset><legend>${label}</legend>${hint}${inner}</fieldset>`
  if (type === 'boolean')
    return group(
      [
        { value: 'true', title: 'Yes' },
        { value: 'false', title: 'No' },
      ]
        .map((one) => pick('radio', one, String(value) === one.value))
        .join(''),
    )
  if (type === 'choice') return group(options.map((one) => pick('radio', one, value === one.value)).join(''))
  if (type === 'choices')
    return group(
      options.map((one) => pick('checkbox', one, Array.isArray(value) && value.includes(one.value))).join(''),
    )
  const text = value === undefined ? '' : escaped(String(value))
  return `<label for="${id}">${label}</label>${hint}<input id="${id}" name="${id}" value="${text}" autocomplete="off">`
}
