/**
 * The pages of an approver, as HTML. They need no script, load nothing, and fit a phone, both colour schemes, a keyboard and a
 * screen reader.
 *
 * page 1: Every text that comes from elsewhere is escaped where it is inserted: `html` escapes all of its values that were not
 *         made by `html` itself.
 * page 2: Marks that change the direction of text are shown as escapes: an argument cannot look like another one.
 */

import { createHash } from 'node:crypto'
import { callerName } from './jobs.ts'
import type { Request } from './request.ts'

/** HTML that was built by `html`. */
class Html {
  readonly text: string
  constructor(text: string) {
    this.text = text
  }
}

type Value = string | number | Html | readonly Html[] | undefined | false

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

function insert(value: Value): string {
  if (value === undefined || value === false) return ''
  if (value instanceof Html) return value.text
  if (Array.isArray(value)) return value.map(insert).join('')
  return String(value).replace(
    /[&<>"'\u202a-\u202e\u2066-\u2069]/g,
    (one) => ESCAPES[one] ?? `\\u${one.charCodeAt(0).toString(16)}`,
  )
}

function html(parts: TemplateStringsArray, ...values: readonly Value[]): Html {
  return new Html(parts.map((part, i) => (i === 0 ? part : insert(values[i - 1]) + part)).join(''))
}

const STYLE = `:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d0d7de;--card:#f6f8fa;--link:#0550ae;--yes:#116329;--no:#a40e26}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9da7b3;--line:#3d444d;--card:#161b22;--link:#79c0ff;--yes:#56d364;--no:#ff7b72}}
*{box-sizing:border-box}body{margin:0 auto;max-width:46rem;padding:1rem;background:var(--bg);color:var(--fg);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
a{color:var(--link)}h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.15rem}header{display:flex;gap:1rem;justify-content:space-between;align-items:center;border-bottom:1px solid var(--line);padding-bottom:.5rem}
.soft{color:var(--soft)}.card{border:1px solid var(--line);border-radius:.5rem;background:var(--card);padding:.75rem 1rem;margin:.75rem 0}ul.list{list-style:none;padding:0;margin:0}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;border-bottom:1px solid var(--line);padding:.4rem .5rem .4rem 0}th{width:30%;font-weight:600}pre{margin:0;white-space:pre-wrap;font:inherit}
textarea,button,select{font:inherit;color:inherit}textarea{width:100%;min-height:5rem;background:var(--bg);border:1px solid var(--soft);border-radius:.375rem;padding:.5rem}
button{min-height:2.75rem;padding:.5rem 1.25rem;border:2px solid var(--fg);border-radius:.375rem;background:var(--bg);cursor:pointer;margin:.5rem .5rem 0 0}
button.yes{border-color:var(--yes);color:var(--yes)}button.no{border-color:var(--no);color:var(--no)}button.quiet{border:0;padding:0;min-height:0;margin:0;background:none;color:var(--link);text-decoration:underline}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}.skip{position:absolute;left:-999rem}.skip:focus{position:static}`

const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64')

/** Headers of every page. A form may be sent to this origin alone, and nothing may be loaded or framed. */
export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'`,
  'cache-control': 'no-store',
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

/** Where links and forms go. */
export interface Place {
  /** The path of the inbox, such as `/approvals`. */
  readonly base: string
  /** Who is logged in; absent before a login. */
  readonly name?: string
  /** Whether there is a session that can be ended here. */
  readonly logout?: boolean
  readonly csrf?: string
}

function layout(title: string, place: Place, body: Html): string {
  const { base, name, logout, csrf } = place
  const leave = html`<form method="post" action="${base}/logout"><input type="hidden" name="csrf" value="${csrf ?? ''}"><button class="quiet">Log out</button></form>`
  return html`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>${title}</title><style>${new Html(STYLE)}</style></head><body><a class="skip" href="#main">Skip to content</a><header><nav aria-label="Pages"><a href="${base}">Approvals</a></nav>${name !== undefined && html`<div class="soft">${name} ${logout === true && leave}</div>`}</header><main id="main">${body}</main></body></html>`
    .text
}

export interface Inbox {
  readonly waiting: readonly Request[]
  readonly decided: readonly Request[]
  /** Where the next page of what waits begins. */
  readonly next?: string
}

export function inboxPage(place: Place, { waiting, decided, next }: Inbox): string {
  const list = (requests: readonly Request[]) =>
    html`<ul class="list">${requests.map((one) => html`<li class="card"><a href="${linkTo(place, one)}">${shorten(one.message)}</a><div class="soft">${one.tool}, asked by ${callerName(one)}. ${stateOf(one)}</div></li>`)}</ul>`
  return layout(
    'Approvals',
    place,
    html`<h1>Waiting for you</h1>${waiting.length === 0 ? html`<p>Nothing waits for you.</p>` : list(waiting)}${next !== undefined && html`<p><a href="${place.base}?after=${next}">More</a></p>`}${decided.length > 0 && html`<h2>Decided by you</h2>${list(decided)}`}`,
  )
}

export interface RequestView {
  readonly request: Request
  /** A sentence about what the visitor just did, or cannot do. */
  readonly news?: string
  /** Whether the visitor may decide. */
  readonly mayDecide: boolean
  /** Why the visitor may not decide. */
  readonly whyNot?: string
}

export function requestPage(place: Place, { request, news, mayDecide, whyNot }: RequestView): string {
  const { tool, message, details, args, groups, quorum, votes, trouble } = request
  const rows = (values: unknown) =>
    Object.entries((values ?? {}) as object).map(
      ([name, value]) => html`<tr><th scope="row">${name}</th><td><pre>${toText(value)}</pre></td></tr>`,
    )
  const table = (caption: string, values: unknown) =>
    Object.keys((values ?? {}) as object).length > 0 &&
    html`<h2>${caption}</h2><table>${rows(values)}</table>`
  const noteHint = request.passNote
    ? 'It is kept in the record. The caller sees it only if you allow that.'
    : 'It is kept in the record, and the caller does not see it.'
  const form = html`<form method="post" action="${linkTo(place, request)}"><input type="hidden" name="csrf" value="${place.csrf ?? ''}"><p><label for="note">Note (optional)</label><br><span class="soft" id="note-hint">${noteHint}</span><textarea id="note" name="note" maxlength="1000" aria-describedby="note-hint"></textarea></p>${request.passNote && html`<p><input type="checkbox" id="show" name="show" value="yes"> <label for="show">Show the note to the caller</label></p>`}<button class="yes" name="decision" value="approve">Approve</button><button class="no" name="decision" value="deny">Deny</button></form>`
  const decided = votes.map(
    (vote) =>
      html`<li>${vote.name} ${vote.approve ? 'approved' : 'denied'} on ${timeOf(vote.at)}${vote.operator === true && ' as an operator'}${vote.note !== undefined && html`: “${vote.note}”${vote.showNote === true && request.passNote && ' (shown to the caller)'}`}</li>`,
  )
  const failing = Object.keys(trouble)
  return layout(
    shorten(message),
    place,
    html`${news !== undefined && html`<p class="card" role="status">${news}</p>`}<h1>${message}</h1><p class="soft">${stateOf(request)}</p><table><tr><th scope="row">Tool</th><td>${tool}</td></tr><tr><th scope="row">Asked by</th><td>${callerName(request)}</td></tr><tr><th scope="row">Asked on</th><td>${timeOf(request.createdAt)}</td></tr><tr><th scope="row">Open until</th><td>${timeOf(request.until)}</td></tr><tr><th scope="row">May be decided by</th><td>${groups.join(', ')}${quorum > 1 && html`; ${quorum} people must approve`}</td></tr></table>${table('Details', details)}${table('Arguments of the call', args)}${votes.length > 0 && html`<h2>Decisions</h2><ul>${decided}</ul>`}${failing.length > 0 && html`<p class="card">Messages could not be sent by ${failing.join(', ')}, and are tried again.</p>`}${mayDecide ? html`<h2>Your decision</h2>${form}` : whyNot !== undefined && html`<p class="card">${whyNot}</p>`}`,
  )
}

export function messagePage(place: Place, title: string, text: string): string {
  return layout(
    title,
    place,
    html`<h1>${title}</h1><p>${text}</p><p><a href="${place.base}">All approvals</a></p>`,
  )
}

const linkTo = ({ base }: Place, { id }: Request): string => `${base}/r/${id}`

const shorten = (text: string): string => (text.length > 120 ? `${text.slice(0, 119)}…` : text)

const timeOf = (at: number): string => `${new Date(at).toISOString().slice(0, 16).replace('T', ' ')} UTC`

function toText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2)
}

function stateOf({ state, until, closedAt }: Request): string {
  switch (state) {
    case 'open':
      return `Open until ${timeOf(until)}.`
    case 'approved':
    case 'denied':
      return `${state === 'approved' ? 'Approved' : 'Denied'} on ${timeOf(closedAt ?? until)}.`
    case 'expired':
      return 'Expired: nobody decided in time, so nothing was executed.'
    default:
      return 'Withdrawn: the call has ended, or asks for something else now.'
  }
}
