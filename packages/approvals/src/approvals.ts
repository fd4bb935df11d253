/** `createApprovals`: the options, and the parts put together as an extension of a server. */

import { RondoError } from 'rondo'
import type {
  ApprovalVote,
  Approver,
  CallFacts,
  DeskNote,
  DeskOutcome,
  Extension,
  ExtensionHost,
} from 'rondo/extension'
import type { ApprovalStore, ChainEntry, ChainLink } from 'rondo/store'
import {
  createDesk,
  type Desk,
  type Page,
  type PageRange,
  type RecordedHappening,
  taskLabel,
} from './desk.ts'
import { createJobs, type Jobs, type Notice, type Notifier } from './jobs.ts'
import { functionLogin, type LoginFunction, type OidcLogin, oidcLogin } from './login.ts'
import { createPeople, type People, type PeopleOptions, PeopleUnavailable } from './people.ts'
import { type Verification, verifyRecord } from './record.ts'
import type { Channel, Request } from './request.ts'
import type { SlackNotifier } from './slack.ts'
import { createWeb, type Fetch, missingVotes, REFUSALS, readBody, vote } from './web.ts'

export interface ApprovalsOptions extends PeopleOptions {
  /** The address of the inbox, as browsers see it. Its path is served beside the MCP endpoint. */
  url: string
  /**
   * `oidc({ issuer, clientId, clientSecret })`, with `<url>/callback` as the redirect address; or, behind a proxy that logs people in,
   * a function from a `Request` to `{ issuer, subject, name }`, or to `undefined` for somebody who is not logged in.
   */
  login: OidcLogin | LoginFunction
  /** How approvers hear of requests: `slack`, `email`, `webhook`, or a function of your own. Default: they look at the inbox. */
  notify?: readonly (Notifier | ((notice: Notice) => unknown))[]
  /** Lets operators decide with `approvals.desk().decide`, without a group; the record names them as operators. Default: false. */
  operators?: boolean
  /** How long closed requests are kept. The record is kept until it is pruned. Default: 90 days. */
  keepMs?: number
  /** How often to look for what is due, in ms. Default: 1000. */
  pollMs?: number
}

/** Pass it to `server.use`. */
export interface Approvals extends Extension {
  /** Serves the pages, for a process of its own: call it with requests for `url` and below. */
  fetch: Fetch
  /** For operators: the requests and the record. Available once a server uses it. */
  desk(): ApprovalsDesk
}

/** The view and the actions of an operator. */
export interface ApprovalsDesk {
  /** The audience of the server, to which the requests and the record belong. */
  readonly tenant: string
  /** The address of the inbox. A request has its page at `/r/<id>` below it. */
  readonly url: string
  /** Returns a request, or undefined if there is none with this id. */
  get(id: string): Promise<Request | undefined>
  /** Requests with any of these labels: `open`, `closed`, `group …`. Default: the oldest first. */
  list(labels: readonly string[], limit: number, options?: PageRange): Promise<Page>
  /** The entries of the record about a request. Reads the whole record. */
  history(id: string): Promise<readonly RecordedHappening[]>
  /** The entries of the record after this number. */
  entries(after: number, limit: number): Promise<readonly RecordedHappening[]>
  /** Deletes the entries up to this number, and leaves a signed checkpoint. False if there is no such entry. */
  prune(through: number): Promise<boolean>
  /** The public keys that verify the record, by the names of the server's keys. */
  publicKeys(): Promise<Readonly<Record<string, string>>>
  /** Checks the whole record with the keys of this server. */
  verify(head?: ChainLink): Promise<Verification>
  /** Decides as an operator: only with `operators: true`. */
  decide(id: string, approve: boolean, operator: string, note?: DeskNote): Promise<DeskOutcome>
  /** Sends what is due now. */
  drain(): Promise<void>
}

const DAY_MS = 86_400_000

interface Parts {
  readonly store: ApprovalStore
  readonly host: ExtensionHost
  readonly desk: Desk
  readonly jobs: Jobs
  readonly people: People
  readonly url: URL
  readonly fetch: Fetch
}

const KNOWN: Readonly<Record<keyof ApprovalsOptions, true>> = {
  url: true,
  login: true,
  groups: true,
  groupsOf: true,
  person: true,
  notify: true,
  operators: true,
  keepMs: true,
  pollMs: true,
}

/**
 * Creates the approvals of a server: pages, login, messages and the record.
 *
 * @example
 * ```ts
 * const approvals = createApprovals({
 *   url: 'https://tools.example/approvals',
 *   login: oidc({ issuer: 'https://login.example', clientId: 'approvals' }),
 *   groups: (name) => directory.members(name),
 * })
 * server.use(approvals)
 * ```
 */
export function createApprovals(options: ApprovalsOptions): Approvals {
  const url = readOptions(options)
  const notifiers = readNotifiers(options.notify ?? [])
  const path = url.pathname.replace(/\/$/, '')
  if (path === '')
    throw new TypeError(
      'createApprovals needs a url with a path of its own, such as https://tools.example/approvals',
    )
  let parts: Parts | undefined
  const attached = (): Parts => {
    if (!parts)
      throw new TypeError('Pass the result of createApprovals to server.use first: server.use(approvals)')
    return parts
  }
  const fetch: Fetch = async (request) => attached().fetch(request)
  const extension: Extension = {
    name: 'approvals',
    routes: { [path]: fetch },
    approver: createApprover(attached, options.operators === true),
    async around(call, next) {
      const reply = await next()
      if (call.kind === 'request') await noticeCancel(attached(), call).catch(() => {})
      return reply
    },
    attach(host) {
      if (parts)
        throw new TypeError('One result of createApprovals belongs to one server: create another one')
      const served = host.pages === undefined ? url : new URL(url.pathname, host.pages)
      parts = assemble(options, { host, url: served, notifiers })
      return () => parts?.jobs.stop()
    },
  }
  const own = { fetch, desk: () => toOperatorDesk(attached(), options.operators === true) }
  // Not enumerable: a server refuses parts of an extension that it does not know.
  return Object.defineProperties(extension, {
    fetch: { value: own.fetch },
    desk: { value: own.desk },
  }) as Approvals
}

interface Setting {
  readonly host: ExtensionHost
  readonly url: URL
  readonly notifiers: readonly Notifier[]
}

function assemble(options: ApprovalsOptions, { host, url, notifiers }: Setting): Parts {
  const store = storeOf(host)
  const people = createPeople(options, options.operators === true)
  const names = notifiers.map(({ name }) => name)
  const { keepMs = 90 * DAY_MS, pollMs } = options
  const desk = createDesk({ host, store, people, notifiers: names, keepMs, onDue: () => jobs.kick() })
  const urlOf = (id: string): string => `${url.href.replace(/\/$/, '')}/r/${id}`
  const jobs = createJobs({ host, store, desk, people, notifiers, urlOf, pollMs })
  const login =
    typeof options.login === 'function'
      ? functionLogin(options.login)
      : oidcLogin(options.login, { host, url })
  const slacks = notifiers.filter((one): one is SlackNotifier => 'kind' in one && one.kind === 'slack')
  const parts = { host, store, desk, people, jobs, url }
  const callbacks = Object.fromEntries(
    slacks.map((one) => [one.name, (request: globalThis.Request) => takeClick(parts, one, request)]),
  )
  return { ...parts, fetch: createWeb({ ...parts, login, callbacks }) }
}

function storeOf({ store }: ExtensionHost): ApprovalStore {
  if (!store)
    throw new TypeError('Approvals need a store: createServer({ store, … }), or createRondo({ store, … })')
  if (store.approvals) return store.approvals
  throw new TypeError(
    `Approvals cannot be kept in this store (${store.kind ?? 'of another kind'}), because it has no part for them: use createSqliteStore or createPostgresStore`,
  )
}

/** The port of the runtime. What cannot be found out now is asked again. */
function createApprover(attached: () => Parts, operators: boolean): Approver {
  return {
    open: (request) => attached().desk.open(request),
    async use(id, attempt, expired) {
      const { desk, host } = attached()
      try {
        return await desk.use(id, attempt, expired)
      } catch (error) {
        if (!(error instanceof PeopleUnavailable)) throw error
        host.log('Approvals: a decision cannot be checked, and is checked again', error)
        // A task is retried later, as if its store were away.
        throw new RondoError('STORE_UNAVAILABLE', 'the groups of approvers are not available', {
          cause: error,
        })
      }
    },
    vote: (cast) => voteInTest(attached(), cast),
    desk: () => toOperatorDesk(attached(), operators),
  }
}

/** Votes like a visitor of the page who has logged in as this person. */
async function voteInTest(parts: Parts, { task, key, approve, by, note, showNote }: ApprovalVote) {
  const { desk, people, jobs } = parts
  // The clock of a test jumps: an escalation may be due that has not happened yet.
  await jobs.drain()
  const { requests } = await desk.list([taskLabel(task)], 50)
  const asked = requests.find((one) => one.key === key)
  if (!asked) return 'Nothing was changed: the task does not wait for this approval.'
  const { issuer = asked.caller?.issuer } = by
  const standing = await people.standing(asked, {
    ...by,
    ...(issuer !== undefined && { issuer }),
    kind: 'login',
  })
  if (standing.kind === 'stranger')
    return `Nothing was changed: not a member of ${asked.groups.join(', ')}, as groups and person say.`
  if (standing.kind === 'self') return `Nothing was changed: ${asked.caller ? CALLER : ANONYMOUS}`
  const votes = asked.votes.length
  const { asked: after, news } = await vote(parts, asked, standing, {
    ...{ approve, note, showNote },
    via: 'test',
  })
  await jobs.drain()
  return after.votes.length > votes ? undefined : news
}

const CALLER = 'the caller, or somebody who cannot be told from the caller.'
const ANONYMOUS =
  'the caller is anonymous, so nobody counts as somebody else. Call with { principal: { issuer, subject } }.'

/** A call that was cancelled needs no decision any more. */
async function noticeCancel({ desk, host }: Parts, call: CallFacts): Promise<void> {
  const isTool = call.method === 'tools/call' && call.target === 'task_cancel'
  const task = call.method === 'tasks/cancel' ? call.task : isTool ? call.args.taskId : undefined
  if (typeof task !== 'string') return
  const { requests } = await desk.list([taskLabel(task)], 50)
  for (const { id, hook } of requests)
    if ((await host.hook(hook)).kind === 'unknown') await desk.withdraw(id, 'ended')
}

async function takeClick(
  parts: Omit<Parts, 'fetch'>,
  notifier: SlackNotifier,
  request: globalThis.Request,
): Promise<Response> {
  const { host, desk, people, jobs } = parts
  const body = await readBody(request)
  const click = body === undefined ? undefined : notifier.readClick(request.headers, body, host.now())
  if (!click) return new Response('The request was not signed by Slack.', { status: 401 })
  if (click === 'ignored') return new Response(null)
  const say = (text: string): Response => {
    // Slack waits three seconds for the response, and may show nothing of it.
    void notifier
      .reply(click, text)
      .catch((error) => host.log('Approvals: a reply to a click could not be sent', error))
    return Response.json({ response_type: 'ephemeral', replace_original: false, text })
  }
  const asked = await desk.get(click.id)
  const identity = { kind: 'slack', issuer: 'slack', subject: click.user, name: click.name } as const
  const standing = asked && (await people.standing(asked, identity))
  if (!asked || !standing || standing.kind === 'stranger')
    return say('Nothing was changed: you may not decide this.')
  const { news } = await vote(parts, asked, standing, { approve: click.approve, via: 'slack' })
  jobs.kick()
  return say(news)
}

function toOperatorDesk({ desk, jobs, store, url }: Parts, operators: boolean): ApprovalsDesk {
  const { tenant, get, list, history, entries, prune, publicKeys } = desk
  return {
    ...{ tenant, get, list, history, entries, prune, publicKeys },
    url: url.href.replace(/\/$/, ''),
    async verify(head) {
      const [keys, stored] = await Promise.all([publicKeys(), store.head(tenant)])
      return verifyRecord(readEntries(store, tenant), { tenant, keys, head, stored })
    },
    drain: jobs.drain,
    async decide(id, approve, operator, { text: note, show } = { text: '' }) {
      if (!operators)
        throw new TypeError('Operators may not decide here: createApprovals({ operators: true }) permits it')
      const via: Channel = 'command'
      const cast = await desk.vote(id, {
        approve,
        person: `operator ${operator}`,
        name: operator,
        via,
        operator: true,
        note,
        ...(show === true && { showNote: true }),
      })
      if (!cast) return { kind: 'refused', message: 'There is no such request.' }
      const { request, refusal } = cast
      const { state } = request
      if (refusal) return { kind: 'refused', state, message: REFUSALS[refusal] }
      await jobs.drain()
      if (state !== 'open') return { kind: 'decided', state, message: approve ? 'Approved.' : 'Denied.' }
      return { kind: 'counted', state, message: missingVotes(request, approve) }
    },
  }
}

async function* readEntries(store: ApprovalStore, tenant: string): AsyncIterable<ChainEntry> {
  for (let after = 0; ; ) {
    const page = await store.entries(tenant, after, 500)
    const last = page.at(-1)
    if (last === undefined) return
    yield* page
    after = last.seq
  }
}

function readOptions(options: ApprovalsOptions): URL {
  for (const name of Object.keys(options ?? {}))
    if (!Object.hasOwn(KNOWN, name)) throw new TypeError(`createApprovals has no option "${name}"`)
  const { url, login, groups, groupsOf, person } = options ?? {}
  if (!URL.canParse(url ?? '') || !/^https?:$/.test(new URL(url).protocol))
    throw new TypeError('createApprovals needs a url, such as https://tools.example/approvals')
  if (typeof groups !== 'function')
    throw new TypeError('createApprovals needs groups: a function that returns the members of a group')
  for (const [name, given] of Object.entries({ person, groupsOf }))
    if (given !== undefined && typeof given !== 'function') throw new TypeError(`${name} must be a function`)
  if (typeof login !== 'function' && login?.kind !== 'oidc')
    throw new TypeError(
      'createApprovals needs a login: oidc({ … }), or a function that tells who sent a request',
    )
  return new URL(url)
}

function readNotifiers(given: NonNullable<ApprovalsOptions['notify']>): readonly Notifier[] {
  const notifiers = given.map((one, i) =>
    typeof one === 'function' ? { name: one.name || `notify ${i + 1}`, notify: one } : one,
  )
  const names = notifiers.map(({ name }) => name)
  const double = names.find((name, i) => names.indexOf(name) !== i)
  if (double !== undefined)
    throw new TypeError(`Two notifiers have the name "${double}": pass a name to one of them`)
  return notifiers
}
