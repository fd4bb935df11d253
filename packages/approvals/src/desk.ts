/**
 * Requests in the store. Every change reads a request, computes the next state, and writes it with its labels, its jobs and its
 * entries in the record in one atomic write; if somebody else was faster, it begins again.
 *
 * desk 1: The request and every entry are sealed with the server's keys, and the sealed text names the id and the version
 *         that it belongs to: rows cannot be exchanged.
 * desk 2: A label says who finds a request: `open`, `closed`, `group …`, `by …` (a digest of the person), `task …`, `wording …`.
 */

import { createHash, randomUUID } from 'node:crypto'
import type { ApprovalRequest, ApprovalVerdict, ExtensionHost } from 'rondo/extension'
import { cleanText } from 'rondo/forms'
import type { ApprovalJob, ApprovalRow, ApprovalStore, ChainEntry, ClaimedJob } from 'rondo/store'
import type { People } from './people.ts'
import { checkpointContent, entryAfter, type SigningKey, toSigningKey } from './record.ts'
import {
  type Change,
  castVote,
  expire,
  type Happening,
  newRequest,
  type Refusal,
  type Request,
  reopen,
  useDecision,
  type Vote,
  whyNoVote,
  withdraw,
} from './request.ts'

export interface DeskOptions {
  readonly host: ExtensionHost
  readonly store: ApprovalStore
  readonly people: People
  /** The names of the notifiers. */
  readonly notifiers: readonly string[]
  /** How long a closed request is kept. */
  readonly keepMs: number
  /** Called after a write that made something due. */
  readonly onDue: () => void
}

/** A change, and what becomes due with it. */
interface Step<T> extends Change {
  readonly jobs?: readonly ApprovalJob[]
  readonly result: T
}

/** A page of requests, and where the next one begins. */
export interface Page {
  readonly requests: readonly Request[]
  readonly next?: { readonly createdAt: number; readonly id: string }
}

/** An entry of the record, with its content. */
export interface RecordedHappening extends ChainEntry {
  /** Absent if the entry cannot be opened with the keys of this server. */
  readonly happening?: Happening & { readonly request: string }
}

export interface Desk {
  readonly tenant: string
  /** The time of the store, by which a request expires for every process. */
  now(): Promise<number>
  get(id: string): Promise<Request | undefined>
  open(request: ApprovalRequest): Promise<void>
  use(id: string, attempt: number, expired: boolean): Promise<ApprovalVerdict>
  vote(id: string, vote: Omit<Vote, 'at'>): Promise<{ request: Request; refusal?: Refusal } | undefined>
  withdraw(id: string, reason: 'reworded' | 'ended'): Promise<void>
  /** Completes a claimed job with what `next` makes of the request. */
  complete(
    job: ClaimedJob,
    next: (request: Request, now: number) => Change & { jobs?: readonly ApprovalJob[] },
  ): Promise<void>
  list(labels: readonly string[], limit: number, options?: PageRange): Promise<Page>
  /** The groups that have an open request. */
  groups(): Promise<readonly string[]>
  history(id: string): Promise<readonly RecordedHappening[]>
  entries(after: number, limit: number): Promise<readonly RecordedHappening[]>
  prune(through: number): Promise<boolean>
  /** The public keys that verify the record, by name. */
  publicKeys(): Promise<Readonly<Record<string, string>>>
}

export interface PageRange {
  /** The end of the page before. */
  readonly after?: Page['next']
  readonly newestFirst?: boolean
}

export const byLabel = (person: string): string => `by ${digest(person)}`
export const taskLabel = (task: string): string => `task ${task}`
export const groupLabel = (group: string): string => `group ${group}`

/** The groups that an inbox looks through. */
export const MAX_GROUPS = 500
const MAX_TRIES = 50
/** The store's own deadline comes first: this one is for a task that nobody runs any more. */
const EXPIRY_GRACE_MS = 60_000
export const CHECK_MS = 60_000

export function createDesk(options: DeskOptions): Desk {
  const { host, store, people, notifiers, keepMs, onDue } = options
  const { tenant } = host
  const keys = createSigningKeys(host)
  const seal = (purpose: string, value: unknown): Promise<string> => host.seal(purpose, JSON.stringify(value))

  const read = async ({ id, version, sealed }: ApprovalRow): Promise<Request | undefined> => {
    const opened = await host.open('request', sealed)
    if (opened === undefined) {
      host.log(
        `The request for approval ${id} cannot be opened with the keys of this server`,
        new Error('sealed'),
      )
      return undefined
    }
    const kept = JSON.parse(new TextDecoder().decode(opened)) as { request: Request; version: number }
    if (kept.request.id === id && kept.version === version) return kept.request
    host.log(`The request for approval ${id} was exchanged in the store`, new Error('exchanged'))
    return undefined
  }
  const write = async (
    { now, ...row }: Pick<ApprovalRow, 'id' | 'version'> & { readonly now: number },
    { next, happenings, jobs = [] }: Omit<Step<unknown>, 'result'>,
    done?: ClaimedJob,
  ): Promise<boolean> => {
    const key = await keys.mint()
    const contents = happenings.map((happening) => seal('record', { ...happening, request: row.id }))
    const entries = (await Promise.all(contents)).map((content) => entryAfter(tenant, key, now, content))
    const outcome = await store.put({
      tenant,
      ...row,
      write: randomUUID(),
      sealed: await seal('request', { request: next, version: row.version + 1 }),
      createdAt: next.createdAt,
      labels: labelsOf(next),
      expiresAt: (next.closedAt ?? next.until) + keepMs,
      jobs,
      ...(done && { done: { name: done.name, epoch: done.epoch } }),
      entries,
    })
    if (outcome.kind === 'conflict') return false
    if (outcome.head) host.log(`Record of approvals: entry ${outcome.head.seq} is ${outcome.head.hash}`)
    if (jobs.length > 0) onDue()
    return true
  }
  /** Changes a request until nobody interferes. `step` may be called again, and returns a result alone to change nothing. */
  const change = async <T>(
    id: string,
    step: (request: Request, now: number) => Promise<Step<T> | { result: T }> | Step<T> | { result: T },
    done?: ClaimedJob,
  ): Promise<T | undefined> => {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const [row, now] = await Promise.all([store.get(tenant, id), store.now()])
      const request = row && (await read(row))
      if (!row || !request) return undefined
      const taken = await step(request, now)
      if (!('next' in taken)) return taken.result
      if (await write({ id, version: row.version, now }, taken, done)) return taken.result
      // Somebody else has the job: it is theirs to complete.
      if (done && tries > 2) return undefined
    }
    throw new Error(`The request for approval ${id} changes all the time`)
  }
  const closing = (request: Request, now: number): readonly ApprovalJob[] =>
    closingJobs(request, notifiers, now)

  const withdrawOne: Desk['withdraw'] = async (id, reason) => {
    await change(id, (request, now) => {
      if (request.state !== 'open') return { result: undefined }
      return { ...withdraw(request, reason, now), jobs: closing(request, now), result: undefined }
    })
  }
  const open: Desk['open'] = async (given) => {
    const { wording } = labelPartsOf(given)
    const rows = await store.list({ tenant, label: wording, limit: 20 })
    for (const { id } of rows) if (id !== given.id) await withdrawOne(id, 'reworded')
    const now = await store.now()
    const created = newRequest(given, now)
    const jobs = openingJobs(created.next, notifiers, now)
    if (await write({ id: given.id, version: 0, now }, { ...created, jobs })) return
    await change(given.id, (request, at) => {
      if (request.attempt > given.attempt) return { result: undefined }
      if (request.state === 'withdrawn') {
        const again = reopen({ ...request, attempt: given.attempt, hook: given.hook })
        return { ...again, jobs: openingJobs(again.next, notifiers, at), result: undefined }
      }
      if (request.hook === given.hook) return { result: undefined }
      const next = { ...request, attempt: given.attempt, hook: given.hook }
      const due = request.state === 'open' ? [] : [{ name: 'deliver', dueAt: at }]
      return { next, happenings: [], jobs: due, result: undefined }
    })
  }
  const use: Desk['use'] = async (id, attempt, expired) => {
    const verdict = await change<ApprovalVerdict>(id, async (request, now) => {
      if (request.used) return { result: request.used }
      if (request.attempt > attempt) return { result: { kind: 'reopened' } }
      if (request.state === 'open' || request.state === 'withdrawn') {
        if (!expired) return { result: { kind: 'reopened' } }
        return { ...expire(request, now), jobs: closing(request, now), result: { kind: 'expired' } }
      }
      const gone = await people.voidVotes(request)
      const used = useDecision(request, (vote) => gone.has(vote), now)
      const result: ApprovalVerdict = used.next.used ?? { kind: 'reopened' }
      const { state } = used.next
      const reopened = state === 'open' ? openingJobs(used.next, notifiers, now) : []
      const jobs = state === 'expired' ? closing(used.next, now) : reopened
      return { ...used, jobs, result }
    })
    return verdict ?? { kind: 'expired' }
  }

  return {
    tenant,
    now: () => store.now(),
    open,
    use,
    async get(id) {
      const row = await store.get(tenant, id)
      return row && read(row)
    },
    vote: (id, vote) =>
      change(
        id,
        (request, now): Step<{ request: Request }> | { result: { request: Request; refusal: Refusal } } => {
          const refusal = whyNoVote(request, vote.person, now)
          if (refusal) return { result: { request, refusal } }
          const cast = castVote(request, { ...showable(vote), at: now })
          const decided = cast.next.state !== 'open'
          const jobs = decided ? [...closing(request, now), { name: 'deliver', dueAt: now }] : []
          return { ...cast, jobs, result: { request: cast.next } }
        },
      ),
    withdraw: withdrawOne,
    async complete(job, next) {
      await change(job.request, (request, now) => ({ ...next(request, now), result: undefined }), job)
    },
    async list(labels, limit, { after, newestFirst } = {}) {
      const found = new Map<string, ApprovalRow>()
      for (const label of labels)
        for (const row of await store.list({ tenant, label, limit: limit + 1, after, newestFirst }))
          found.set(row.id, row)
      const direction = newestFirst ? -1 : 1
      const rows = [...found.values()].sort(
        (a, b) => direction * (a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1)),
      )
      const page = rows.slice(0, limit)
      const last = page.at(-1)
      const requests = (await Promise.all(page.map(read))).filter((one) => one !== undefined)
      return {
        requests,
        ...(rows.length > limit && last && { next: { createdAt: last.createdAt, id: last.id } }),
      }
    },
    groups: async () =>
      (await store.labels(tenant, groupLabel(''), MAX_GROUPS)).map((label) =>
        label.slice(groupLabel('').length),
      ),
    ...createHistory(options, keys),
  }
}

const MAX_NOTE = 1_000
const MAX_NAME = 200

/** A vote whose texts may be shown, to people and to the caller: nothing in them is hidden, reordered, or half a character. */
function showable(vote: Omit<Vote, 'at'>): Omit<Vote, 'at'> {
  const name = cleanText(vote.name, MAX_NAME) || vote.person
  const { note, ...rest } = vote
  const clean = note === undefined ? '' : cleanText(note, MAX_NOTE, 'many')
  return { ...rest, name, ...(clean !== '' && { note: clean }) }
}

/** The jobs to remove when a request is closed, and the messages to update. */
export function closingJobs(
  request: Request,
  notifiers: readonly string[],
  now: number,
): readonly ApprovalJob[] {
  const over = ['expire', 'escalate', 'remind', 'check', ...notifiers.map((name) => `notify ${name}`)]
  const updates = Object.keys(request.refs).map((name) => ({ name: `update ${name}`, dueAt: now }))
  return [...over.map((name) => ({ name, dueAt: null })), ...updates]
}

/** The jobs of a request that is opened or reopened. */
function openingJobs(request: Request, notifiers: readonly string[], now: number): readonly ApprovalJob[] {
  const { until, escalate, remindMs } = request
  const jobs: ApprovalJob[] = notifiers.map((name) => ({ name: `notify ${name}`, dueAt: now }))
  jobs.push({ name: 'expire', dueAt: until + EXPIRY_GRACE_MS }, { name: 'check', dueAt: now + CHECK_MS })
  if (escalate) jobs.push({ name: 'escalate', dueAt: request.createdAt + escalate.afterMs })
  if (remindMs !== undefined) jobs.push({ name: 'remind', dueAt: now + remindMs })
  return jobs
}

function labelPartsOf({ flow, key }: Pick<ApprovalRequest, 'flow' | 'key'>) {
  return { wording: `wording ${digest(JSON.stringify([flow, key]))}` }
}

function labelsOf(request: Request): readonly string[] {
  const by = request.votes.map(({ person }) => byLabel(person))
  if (request.state !== 'open') return ['closed', ...new Set(by)]
  const { wording } = labelPartsOf(request)
  const task = request.task === undefined ? [] : [taskLabel(request.task)]
  return ['open', wording, ...task, ...request.groups.map(groupLabel), ...new Set(by)]
}

export const digest = (text: string): string =>
  createHash('sha256').update(text).digest('base64url').slice(0, 32)

interface SigningKeys {
  mint(): Promise<SigningKey>
  all(): Promise<readonly SigningKey[]>
}

/** Derived again for every write: the ring may have changed. */
function createSigningKeys(host: ExtensionHost): SigningKeys {
  const known = new Map<string, SigningKey>()
  const all = async (): Promise<readonly SigningKey[]> =>
    (await host.derive('record')).map(({ name, secret }) => {
      const text = `${name} ${Buffer.from(secret).toString('base64url')}`
      const key = known.get(text) ?? toSigningKey(name, secret)
      known.set(text, key)
      return key
    })
  return {
    all,
    async mint() {
      const [first] = await all()
      if (!first) throw new Error('The server has no key')
      return first
    },
  }
}

/** Entries that a request has at most on its page. */
const MAX_HISTORY = 200

function createHistory(
  { host, store }: DeskOptions,
  keys: SigningKeys,
): Pick<Desk, 'history' | 'entries' | 'prune' | 'publicKeys'> {
  const { tenant } = host
  const openEntry = async (entry: ChainEntry): Promise<RecordedHappening> => {
    const opened = await host.open('record', entry.content)
    const happening = opened && JSON.parse(new TextDecoder().decode(opened))
    return { ...entry, ...(happening && { happening }) }
  }
  const entries: Desk['entries'] = async (after, limit) =>
    Promise.all((await store.entries(tenant, after, limit)).map(openEntry))
  return {
    entries,
    async history(id) {
      const found: RecordedHappening[] = []
      for (let after = 0; found.length < MAX_HISTORY; ) {
        const page = await entries(after, 500)
        found.push(...page.filter(({ happening }) => happening?.request === id))
        const last = page.at(-1)
        if (last === undefined) break
        after = last.seq
      }
      return found
    },
    async prune(through) {
      const [key, now] = await Promise.all([keys.mint(), store.now()])
      const head = await store.prune(tenant, through, (pruned) =>
        entryAfter(tenant, key, now, checkpointContent(pruned)),
      )
      if (head) host.log(`Record of approvals: pruned to ${through}; entry ${head.seq} is ${head.hash}`)
      return head !== undefined
    },
    async publicKeys() {
      return Object.fromEntries((await keys.all()).map((key) => [key.name, key.public]))
    },
  }
}
