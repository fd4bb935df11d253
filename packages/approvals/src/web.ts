/**
 * The pages and callbacks as one web-standard handler: `GET <url>` the inbox, `GET` and `POST <url>/r/<id>` a request, the login,
 * and what notifiers receive.
 *
 * web 1: A GET changes nothing: mail scanners and previews open links.
 * web 2: A form counts only with a token that this service sealed for its visitor, and from a page of this origin.
 * web 3: Whoever may not decide a request learns nothing about it: unknown ids, foreign ids and requests of other groups look
 *        alike. The caller may see its own request if it is a member, and is told why it cannot decide.
 */

import type { ExtensionHost } from 'rondo/extension'
import { byLabel, type Desk, groupLabel, MAX_GROUPS, type Page } from './desk.ts'
import type { Jobs } from './jobs.ts'
import { type Login, redirect, type Visitor } from './login.ts'
import { inboxPage, messagePage, PAGE_HEADERS, type Place, requestPage } from './page.ts'
import { type People, PeopleUnavailable, type Standing } from './people.ts'
import type { Request as Asked, Channel, Refusal } from './request.ts'

export interface WebOptions {
  readonly host: ExtensionHost
  readonly desk: Desk
  readonly jobs: Jobs
  readonly people: People
  readonly login: Login
  readonly url: URL
  /** Callbacks of notifiers, by the last part of their path. */
  readonly callbacks: Readonly<Record<string, (request: Request) => Promise<Response>>>
}

const PAGE_SIZE = 25
const MAX_BODY = 64 * 1024
const CSRF_MS = 12 * 3_600_000
/** How long a list of groups is remembered for inboxes. Decisions ask again. */
const GROUPS_MS = 15_000

export type Fetch = (request: Request) => Promise<Response>

export function createWeb(options: WebOptions): Fetch {
  const { host, url, login, callbacks } = options
  const base = url.pathname.replace(/\/$/, '')
  const pages = createPages(options, base)
  return async (request) => {
    const { pathname } = new URL(request.url)
    const path = pathname.startsWith(base) ? pathname.slice(base.length) : pathname
    try {
      const callback = /^\/callbacks\/([\w-]+)$/.exec(path)?.[1]
      if (callback !== undefined && request.method === 'POST' && Object.hasOwn(callbacks, callback))
        return (await callbacks[callback]?.(request)) ?? notFound(base)
      if (path === '/callback' && request.method === 'GET') return await login.finish(request)
      const visitor = await login.visitor(request)
      if (!visitor) {
        if (request.method === 'GET') return await login.begin(request)
        return page(
          401,
          messagePage({ base }, 'Log in first', 'Your login has ended, and nothing was changed.'),
        )
      }
      return await pages(request, path, visitor)
    } catch (error) {
      host.log('Approvals: a page failed', error)
      const text =
        request.method === 'GET'
          ? 'Nothing was changed. Try again in a moment.'
          : 'It is not known whether this was recorded. Open the page again in a moment: it shows what was.'
      return page(503, messagePage({ base }, 'This did not work', text))
    }
  }
}

function createPages(options: WebOptions, base: string) {
  const { host, desk, jobs, people, login, url } = options
  const groupsOf = createGroupsOf(options)
  const forms = createForms(host, url)
  const placeOf = async ({ identity, hasSession }: Visitor): Promise<Place> => ({
    base,
    name: identity.name ?? identity.subject,
    logout: hasSession,
    csrf: await forms.token(identity.issuer, identity.subject),
  })
  const inbox = async (request: Request, visitor: Visitor): Promise<Response> => {
    const id = await people.idOf(visitor.identity)
    const place = await placeOf(visitor)
    if (id === undefined) return page(200, inboxPage(place, { waiting: [], decided: [] }))
    const after = readCursor(new URL(request.url).searchParams.get('after'))
    const labels = (await groupsOf(id)).map(groupLabel)
    const [waiting, decided] = await Promise.all([
      desk.list(labels, PAGE_SIZE, { after }),
      desk.list([byLabel(id)], PAGE_SIZE, { newestFirst: true }),
    ])
    const next = waiting.next && `${waiting.next.createdAt}.${waiting.next.id}`
    return page(200, inboxPage(place, { waiting: waiting.requests, decided: decided.requests, next }))
  }
  const find = async (
    id: string,
    visitor: Visitor,
  ): Promise<{ asked: Asked; standing: Standing } | undefined> => {
    const asked = await desk.get(id)
    if (!asked) return undefined
    const standing = await people.standing(asked, visitor.identity)
    if (standing.kind !== 'stranger') return { asked, standing }
    // Somebody who decided may read it, in the group or not.
    const person = await people.idOf(visitor.identity)
    return asked.votes.some((vote) => vote.person === person) ? { asked, standing } : undefined
  }
  const show = async (
    visitor: Visitor,
    asked: Asked,
    standing: Standing,
    news?: string,
  ): Promise<Response> => {
    const voted = standing.kind === 'may' && asked.votes.some(({ person }) => person === standing.person)
    const isOpen = asked.state === 'open' && (await desk.now()) < asked.until
    const mayDecide = isOpen && standing.kind === 'may' && !voted
    const whyNot = !isOpen ? undefined : voted ? 'You have decided.' : whyNotOf(asked, standing)
    return page(200, requestPage(await placeOf(visitor), { request: asked, news, mayDecide, whyNot }))
  }
  const decide = async (request: Request, visitor: Visitor, id: string): Promise<Response> => {
    const form = await forms.read(request, visitor)
    if (form === undefined)
      return page(
        403,
        messagePage(
          await placeOf(visitor),
          'Nothing was decided',
          'The form has expired, or came from another site. Open the page again.',
        ),
      )
    const found = await find(id, visitor)
    if (!found) return notFound(base)
    const choice = form.get('decision')
    const note = form.get('note') ?? ''
    if (choice !== 'approve' && choice !== 'deny')
      return show(visitor, found.asked, found.standing, 'Nothing was decided: choose Approve or Deny.')
    const outcome = await vote(options, found.asked, found.standing, {
      approve: choice === 'approve',
      via: 'page',
      note,
      showNote: form.get('show') === 'yes',
    })
    return show(visitor, outcome.asked, found.standing, outcome.news)
  }
  return async (request: Request, path: string, visitor: Visitor): Promise<Response> => {
    const id = /^\/r\/([\w-]{1,128})$/.exec(path)?.[1]
    if (request.method === 'GET' && (path === '' || path === '/')) return inbox(request, visitor)
    if (request.method === 'GET' && id !== undefined) {
      const found = await find(id, visitor)
      return found ? show(visitor, found.asked, found.standing) : notFound(base)
    }
    if (request.method === 'POST' && id !== undefined) {
      const response = await decide(request, visitor, id)
      jobs.kick()
      return response
    }
    if (request.method === 'POST' && path === '/logout' && login.end !== undefined) {
      if (!(await forms.read(request, visitor))) return notFound(base)
      return redirect(base === '' ? '/' : base, [login.end])
    }
    return notFound(base)
  }
}

const ANONYMOUS =
  'Nobody can decide this: the caller is anonymous, so the server cannot tell you from the caller. Its operator has to identify callers.'
const SELF =
  'You cannot decide this yourself: you are the caller, or the server cannot tell you from the caller.'

function whyNotOf(asked: Asked, standing: Standing): string | undefined {
  if (standing.kind === 'stranger') return 'You may not decide this any more.'
  if (standing.kind === 'self') return asked.caller ? SELF : ANONYMOUS
  return undefined
}

export const REFUSALS: Readonly<Record<Refusal, string>> = {
  closed: 'Nothing was changed: this request was closed before.',
  late: 'Nothing was changed: the time for a decision is up.',
  voted: 'Nothing was changed: you have decided before.',
}

/** Casts a vote of somebody whose standing was just checked; says what became of it. */
export async function vote(
  { desk, host }: Pick<WebOptions, 'desk' | 'host'>,
  asked: Asked,
  standing: Standing,
  { approve, via, note, showNote }: { approve: boolean; via: Channel; note?: string; showNote?: boolean },
): Promise<{ readonly asked: Asked; readonly news: string }> {
  if (standing.kind !== 'may') return { asked, news: `Nothing was changed. ${whyNotOf(asked, standing)}` }
  // A call that was cancelled may not have been noticed yet.
  if (asked.state === 'open' && (await host.hook(asked.hook)).kind === 'unknown') {
    const now = await desk.get(asked.id)
    if (now?.hook === asked.hook) await desk.withdraw(asked.id, 'ended')
  }
  const { person, name } = standing
  const cast = await desk.vote(asked.id, {
    approve,
    person,
    name,
    via,
    ...(note !== undefined && { note }),
    ...(showNote === true && { showNote }),
  })
  if (!cast) return { asked, news: 'Nothing was changed: this request is gone.' }
  if (cast.refusal) return { asked: cast.request, news: REFUSALS[cast.refusal] }
  const { request } = cast
  const news = approve ? 'You have approved this.' : 'You have denied this.'
  return {
    asked: request,
    news: request.state === 'open' ? `${news} ${missingVotes(request, approve)}` : news,
  }
}

/** Says how many votes of a kind an open request has, and how many decide it. */
export function missingVotes({ votes, quorum, denials }: Asked, approve: boolean): string {
  const cast = votes.filter((one) => one.approve === approve).length
  return `${cast} of ${approve ? quorum : denials} ${approve ? 'approvals' : 'denials'}: the request waits for more.`
}

/** The groups that somebody belongs to, those with open requests at least. */
function createGroupsOf({ desk, people, host }: WebOptions): (person: string) => Promise<readonly string[]> {
  const known = new Map<string, { readonly at: number; readonly ids: ReadonlySet<string> }>()
  let isSaid = false
  const idsIn = async (group: string): Promise<ReadonlySet<string>> => {
    const fresh = known.get(group)
    if (fresh && host.now() - fresh.at < GROUPS_MS) return fresh.ids
    const ids = new Set((await people.members(group)).map(({ id }) => id))
    known.set(group, { at: host.now(), ids })
    const [oldest] = known.keys()
    if (known.size > 1_000 && oldest !== undefined) known.delete(oldest)
    return ids
  }
  return async (person) => {
    const named = await people.groupsOf(person)
    if (named) return named
    const mine: string[] = []
    const groups = await desk.groups()
    if (groups.length >= MAX_GROUPS && !isSaid) {
      isSaid = true
      host.log(
        `Approvals: more than ${MAX_GROUPS} groups have open requests, and inboxes miss some: pass groupsOf to createApprovals`,
        new Error('too many groups'),
      )
    }
    for (const group of groups) {
      const ids = await idsIn(group).catch((error) => {
        if (error instanceof PeopleUnavailable)
          host.log(`Approvals: the group "${group}" is unknown for now`, error)
        return undefined
      })
      if (ids?.has(person)) mine.push(group)
    }
    return mine
  }
}

/** Tokens in forms, sealed for the visitor. */
function createForms(host: ExtensionHost, url: URL) {
  return {
    token: (issuer: string | undefined, subject: string): Promise<string> =>
      host.seal('form', JSON.stringify({ issuer, subject, expires: host.now() + CSRF_MS })),
    /** The fields of a form that the visitor sent from a page of ours; undefined for any other. */
    async read(request: Request, { identity }: Visitor): Promise<URLSearchParams | undefined> {
      const origin = request.headers.get('origin')
      const site = request.headers.get('sec-fetch-site')
      if (origin !== null && origin !== url.origin) return undefined
      if (site !== null && site !== 'same-origin') return undefined
      const type = request.headers.get('content-type') ?? ''
      if (!type.startsWith('application/x-www-form-urlencoded')) return undefined
      const body = await readBody(request)
      if (body === undefined) return undefined
      const form = new URLSearchParams(body)
      const opened = await host.open('form', form.get('csrf') ?? '')
      if (!opened) return undefined
      const { issuer, subject, expires } = JSON.parse(new TextDecoder().decode(opened))
      const isTheirs = subject === identity.subject && issuer === identity.issuer
      return isTheirs && expires > host.now() ? form : undefined
    },
  }
}

/** The text of a body; undefined if it is too large. */
export async function readBody(request: Request): Promise<string | undefined> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of request.body ?? []) {
    size += chunk.length
    if (size > MAX_BODY) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function readCursor(text: string | null): Page['next'] {
  const [, at, id] = /^(\d{1,15})\.([\w-]{1,128})$/.exec(text ?? '') ?? []
  return at !== undefined && id !== undefined ? { createdAt: Number(at), id } : undefined
}

const page = (status: number, body: string): Response => new Response(body, { status, headers: PAGE_HEADERS })

const notFound = (base: string): Response =>
  page(404, messagePage({ base }, 'Not found', 'There is no such request, or you may not see it.'))
