/**
 * The jobs of requests: messages to approvers, reminders, escalation, expiry, and the delivery of a decision to its task.
 * Every process that has the store claims due jobs; a lease that ends hands the job to another.
 *
 * jobs 1: A job is complete when the write that says so is stored. A process that dies before repeats it, so a message may come
 *         twice; a decision is delivered to a hook, which takes it once.
 * jobs 2: A notifier that fails is tried again, with longer and longer pauses, until the request is closed.
 * jobs 3: Messages are sent apart from all other jobs: a notifier that hangs delays neither a delivery nor the messages of
 *         another. Its messages at one time are bounded by what it may send in a minute.
 */

import type { ExtensionHost } from 'rondo/extension'
import type { ApprovalJob, ApprovalStore, ClaimedJob } from 'rondo/store'
import { CHECK_MS, closingJobs, type Desk, digest } from './desk.ts'
import type { Member, People } from './people.ts'
import { type Change, escalate, expire, type Request, type RequestState, withdraw } from './request.ts'

/** A message to approvers. It is only a view: the store has the truth. */
export interface Notice {
  /** `update`: the request is closed, and what was sent before should say so. */
  readonly kind: 'asked' | 'reminder' | 'escalated' | 'update'
  /** The id of the request. */
  readonly id: string
  /** The id of this message: the same in every attempt to send it. */
  readonly messageId: string
  /** The page of the request. It opens the page, and decides nothing. */
  readonly url: string
  readonly tool: string
  /** Who asks, as far as it is known. */
  readonly caller: string
  readonly message: string
  readonly details: Readonly<Record<string, unknown>>
  readonly groups: readonly string[]
  /** Who may decide, except for an update. */
  readonly members: readonly Member[]
  /** Ms since the epoch. */
  readonly until: number
  readonly state: RequestState
  readonly decidedBy: readonly { readonly name: string; readonly approve: boolean }[]
  /** The value that the notifier returned for the previous message. */
  readonly ref?: unknown
}

/** Sends messages to approvers. What `notify` returns (JSON) is kept for the next message about the same request. */
export interface Notifier {
  readonly name: string
  notify(notice: Notice): unknown
}

export interface JobOptions {
  readonly host: ExtensionHost
  readonly store: ApprovalStore
  readonly desk: Desk
  readonly people: People
  readonly notifiers: readonly Notifier[]
  readonly urlOf: (id: string) => string
  /** How often to look for jobs of other processes. */
  readonly pollMs?: number
}

export interface Jobs {
  /** Looks for due jobs now. */
  kick(): void
  /** Runs everything that is due; resolves when nothing is. For tests and the command. */
  drain(): Promise<void>
  stop(): Promise<void>
}

/** A decision whose process dies before it is delivered waits that long. */
const LEASE_MS = 45_000
const NOTIFY_MS = 30_000
const BATCH = 16
/** Messages of one notifier in a minute and process; those beyond wait. */
const MAX_PER_MINUTE = 60
/** After that, an update of a closed request is dropped. */
const MAX_UPDATES = 12

const backoff = (attempts: number): number => Math.min(2_000 * 2 ** Math.min(attempts, 12), 30 * 60_000)

export function createJobs(options: JobOptions): Jobs {
  const { host, store, pollMs = 1_000 } = options
  const { run, isMessage } = createRunJob(options)
  const sending = new Set<Promise<void>>()
  let stopped = false
  let working: Promise<void> | undefined
  let again = false
  const work = async (): Promise<void> => {
    do {
      again = false
      for (;;) {
        const claimed = stopped ? [] : await store.claim(host.tenant, LEASE_MS, BATCH)
        if (claimed.length === 0) break
        const running = claimed.map((job) => ({
          isMessage: isMessage(job),
          done: run(job).catch((error) => host.log(`Approvals: ${job.name} failed`, error)),
        }))
        for (const { done } of running.filter((one) => one.isMessage)) {
          sending.add(done)
          void done.finally(() => sending.delete(done))
        }
        await Promise.all(running.filter((one) => !one.isMessage).map(({ done }) => done))
      }
    } while (again && !stopped)
  }
  const start = (): Promise<void> => {
    if (working) {
      again = true
      return working
    }
    working = work().finally(() => {
      working = undefined
    })
    return working
  }
  const kick = (): void => {
    // A reaction for each call would stay with a promise that may be pending for long.
    if (working) again = true
    else if (!stopped)
      void start().catch((error) => host.log('Approvals: the store cannot be reached', error))
  }
  const timer = setInterval(kick, pollMs)
  timer.unref()
  return {
    kick,
    async drain() {
      for (;;) {
        await start()
        if (sending.size === 0) return
        await Promise.all(sending)
      }
    },
    async stop() {
      stopped = true
      clearInterval(timer)
      await working?.catch(() => {})
      await Promise.all(sending)
    },
  }
}

type RunJob = (job: ClaimedJob) => Promise<void>

/** Returns a change that keeps the request and adds jobs. */
const unchanged =
  (jobs: readonly ApprovalJob[] = []) =>
  (request: Request) => ({ next: request, happenings: [], jobs })

function createRunJob(options: JobOptions): { run: RunJob; isMessage: (job: ClaimedJob) => boolean } {
  const { host, desk, notifiers } = options
  const messages = createMessages(options)
  const names = notifiers.map(({ name }) => name)
  const closed = (change: Change, now: number) => ({
    ...change,
    jobs: closingJobs(change.next, names, now),
  })
  const remind = async (job: ClaimedJob): Promise<void> =>
    desk.complete(job, (request, now) => {
      if (request.state !== 'open' || request.remindMs === undefined) return unchanged()(request)
      const jobs = notifiers.map(({ name }) => ({ name: `notify ${name}`, dueAt: now }))
      const next = { name: 'remind', dueAt: now + request.remindMs }
      return { next: request, happenings: [{ event: 'reminded' }], jobs: [...jobs, next] }
    })
  const toEscalate = async (job: ClaimedJob): Promise<void> =>
    desk.complete(job, (request, now) => {
      if (request.state !== 'open') return unchanged()(request)
      return {
        ...escalate(request),
        jobs: notifiers.map(({ name }) => ({ name: `notify ${name}`, dueAt: now })),
      }
    })
  const toExpire = async (job: ClaimedJob): Promise<void> =>
    desk.complete(job, (request, now) =>
      request.state === 'open' ? closed(expire(request, now), now) : unchanged()(request),
    )
  /** Withdraws a request whose task has ended, which nobody may have noticed. */
  const check = async (job: ClaimedJob): Promise<void> => {
    const request = await desk.get(job.request)
    const isGone = request?.state === 'open' && (await host.hook(request.hook)).kind === 'unknown'
    await desk.complete(job, (now, at) => {
      if (now.state !== 'open') return unchanged()(now)
      if (isGone && now.hook === request?.hook) return closed(withdraw(now, 'ended', at), at)
      const dueAt = at + Math.min(CHECK_MS * 2 ** Math.min(job.attempts, 6), 3_600_000)
      return unchanged([{ name: 'check', dueAt, attempts: job.attempts }])(now)
    })
  }
  const deliver = async (job: ClaimedJob): Promise<void> => {
    const request = await desk.get(job.request)
    if (!request) return
    try {
      await host.deliver(request.hook, { attempt: request.attempt })
    } catch (error) {
      host.log('Approvals: a decision could not be delivered, and is delivered again', error)
      const { attempts } = job
      return desk.complete(job, (one, now) =>
        unchanged([{ name: 'deliver', dueAt: now + backoff(attempts), attempts }])(one),
      )
    }
    // While the decision was delivered, the program may have opened another hook.
    await desk.complete(job, (one, now) =>
      unchanged(one.hook === request.hook ? [] : [{ name: 'deliver', dueAt: now }])(one),
    )
  }
  const fixed: Readonly<Record<string, RunJob>> = {
    remind,
    escalate: toEscalate,
    expire: toExpire,
    check,
    deliver,
  }
  const run: RunJob = async (job) => {
    const [kind = '', ...rest] = job.name.split(' ')
    const own = fixed[kind]
    if (own) return own(job)
    const notifier = notifiers.find(({ name }) => name === rest.join(' '))
    if (notifier) return messages(job, notifier, kind === 'update')
    // The notifier was removed from the options.
    await desk.complete(job, unchanged())
  }
  return { run, isMessage: ({ name }) => !Object.hasOwn(fixed, name) }
}

function createMessages({ host, desk, people, urlOf }: JobOptions) {
  const sent = new Map<string, { since: number; count: number }>()
  /** Counts a message; false if this minute has had enough. */
  const mayPass = (notifier: string): boolean => {
    const now = host.now()
    const window = sent.get(notifier)
    if (!window || now - window.since >= 60_000) sent.set(notifier, { since: now, count: 1 })
    else if (window.count >= MAX_PER_MINUTE) return false
    else window.count += 1
    return true
  }
  const toNotice = async (request: Request, name: string, isUpdate: boolean): Promise<Notice> => {
    const lists = isUpdate ? [] : await Promise.all(request.groups.map((group) => people.members(group)))
    const members = [...new Map(lists.flat().map((member) => [member.id, member])).values()]
    const { id, tool, message, details, groups, until, state, refs } = request
    const wasSent = name in refs
    const number = request.sent?.[name] ?? 0
    const isEscalated = groups.length > request.from.length
    return {
      kind: isUpdate ? 'update' : !wasSent ? 'asked' : isEscalated ? 'escalated' : 'reminder',
      messageId: digest(JSON.stringify([id, name, isUpdate, number])),
      url: urlOf(id),
      caller: callerName(request),
      decidedBy: request.votes.map((vote) => ({ name: vote.name, approve: vote.approve })),
      members,
      ...{ id, tool, message, details, groups, until, state },
      ...(wasSent && { ref: refs[name] }),
    }
  }
  return async (job: ClaimedJob, notifier: Notifier, isUpdate: boolean): Promise<void> => {
    const request = await desk.get(job.request)
    if (!request) return
    const { name } = notifier
    if (!isUpdate && request.state !== 'open') return desk.complete(job, unchanged())
    if (!mayPass(name))
      return desk.complete(job, (one, now) =>
        unchanged([{ name: job.name, dueAt: now + 60_000, attempts: job.attempts - 1 }])(one),
      )
    try {
      const notice = await toNotice(request, name, isUpdate)
      const ref = (await inTime(notifier, notice)) ?? null
      await desk.complete(job, (one) => {
        const { [name]: _, ...trouble } = one.trouble
        const sent = { ...one.sent, [name]: (one.sent?.[name] ?? 0) + 1 }
        const next = { ...one, refs: { ...one.refs, [name]: ref }, sent, trouble }
        return { next, happenings: [{ event: 'notified', notifier: name, kind: notice.kind }] }
      })
    } catch (error) {
      host.log(`Approvals: the notifier "${name}" failed (attempt ${job.attempts})`, error)
      const isDropped = isUpdate && job.attempts >= MAX_UPDATES
      await desk.complete(job, (one, now) => {
        const next = { ...one, trouble: { ...one.trouble, [name]: job.attempts } }
        const again = { name: job.name, dueAt: now + backoff(job.attempts), attempts: job.attempts }
        return { next, happenings: [], jobs: isDropped ? [] : [again] }
      })
    }
  }
}

async function inTime(notifier: Notifier, notice: Notice): Promise<unknown> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`It took longer than ${NOTIFY_MS} ms`)), NOTIFY_MS)
  })
  try {
    return await Promise.race([(async () => notifier.notify(notice))(), late])
  } finally {
    clearTimeout(timer)
  }
}

/** How the caller is shown to approvers. */
export function callerName({ caller }: Pick<Request, 'caller'>): string {
  if (!caller) return 'an anonymous caller'
  const { name, email } = (caller.claims ?? {}) as { name?: unknown; email?: unknown }
  const known = [name, email].find((one) => typeof one === 'string' && one !== '')
  return known === undefined ? caller.subject : `${known} (${caller.subject})`
}
