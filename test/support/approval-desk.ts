/**
 * Approvals without a server: the extension attached to a host that seals with a key of its own, keeps its clock in the hands of
 * the test, and counts deliveries.
 */

import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto'
import { type ApprovalsOptions, createApprovals } from '@rondo/approvals'
import type { HookView } from 'rondo'
import type { ApprovalRequest, ExtensionHost } from 'rondo/extension'
import type { Store } from 'rondo/store'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

export const ORIGIN = 'https://tools.example'
export const LOGIN = 'https://login.example'

/** The members of each group. Tests change it. */
export type Directory = Record<string, { id: string; name?: string; email?: string }[]>

export interface DeskBench {
  readonly host: ExtensionHost
  readonly store: Store
  readonly approvals: ReturnType<typeof createApprovals>
  readonly directory: Directory
  readonly delivered: { hook: string; event: unknown }[]
  readonly hooks: Map<string, HookView>
  readonly log: string[]
  pass(ms: number): void
  /** Opens a request, and returns it. */
  ask(changes?: Partial<ApprovalRequest>): Promise<ApprovalRequest>
  /** Opens a page as somebody, through the function that tells who visits. */
  visit(path: string, as?: string, init?: RequestInit): Promise<Response>
  /** Decides on the page, with the form that it shows. */
  decide(id: string, as: string, decision: string, note?: string, show?: 'yes'): Promise<string>
  close(): Promise<void>
}

export interface BenchOptions extends Partial<ApprovalsOptions> {
  readonly store?: Store
  readonly key?: Buffer
  readonly tenant?: string
  /** How far the clock of the process is ahead of the store's, in ms. */
  readonly aheadMs?: number
}

const seed = (...parts: readonly string[]): Buffer =>
  createHash('sha256').update(JSON.stringify(parts)).digest()

export function createDeskBench({
  store: given,
  key = randomBytes(32),
  tenant = 'deployer',
  aheadMs = 0,
  ...options
}: BenchOptions = {}): DeskBench {
  let time = 1_800_000_000_000
  const store = given ?? createMemoryStore({ now: () => time })
  const delivered: DeskBench['delivered'] = []
  const hooks = new Map<string, HookView>()
  const log: string[] = []
  const keyFor = (purpose: string) => seed(key.toString('hex'), purpose, tenant)
  const host: ExtensionHost = {
    name: 'deployer',
    tenant,
    store,
    now: () => time + aheadMs,
    hasTool: () => false,
    log: (message, error) => void log.push(error === undefined ? message : `${message}: ${String(error)}`),
    async seal(purpose, data) {
      const iv = randomBytes(12)
      const cipher = createCipheriv('aes-256-gcm', keyFor(purpose), iv)
      return Buffer.concat([iv, cipher.update(data), cipher.final(), cipher.getAuthTag()]).toString(
        'base64url',
      )
    },
    async open(purpose, sealed) {
      const bytes = Buffer.from(sealed, 'base64url')
      if (bytes.length < 28) return undefined
      const decipher = createDecipheriv('aes-256-gcm', keyFor(purpose), bytes.subarray(0, 12))
      decipher.setAuthTag(bytes.subarray(-16))
      try {
        return Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()])
      } catch {
        return undefined
      }
    },
    async deliver(hook, event) {
      delivered.push({ hook, event })
      return { kind: 'accepted' }
    },
    hook: async (id) => hooks.get(id) ?? { kind: 'open' },
    derive: async (purpose) => [{ name: 'k1', secret: keyFor(`derive ${purpose}`) }],
  }
  const directory: Directory = {
    'release-managers': [{ id: 'ann', name: 'Ann' }, { id: 'bob', name: 'Bob' }, { id: 'carl' }],
    board: [{ id: 'dora', name: 'Dora' }],
  }
  const approvals = createApprovals({
    url: `${ORIGIN}/approvals`,
    login: (request) => {
      const subject = request.headers.get('x-user')
      return subject === null
        ? undefined
        : { kind: 'login', issuer: LOGIN, subject, name: subject.toUpperCase() }
    },
    groups: (name) => directory[name] ?? [],
    pollMs: 3_600_000,
    ...options,
  })
  const stop = approvals.attach?.(host)
  let asked = 0
  const visit: DeskBench['visit'] = (path, as, init = {}) => {
    const headers = new Headers(init.headers)
    if (as !== undefined) headers.set('x-user', as)
    return approvals.fetch(new Request(`${ORIGIN}/approvals${path}`, { ...init, headers }))
  }
  return {
    host,
    store,
    approvals,
    directory,
    delivered,
    hooks,
    log,
    visit,
    pass: (ms) => {
      time += ms
    },
    async ask(changes = {}) {
      asked += 1
      const request: ApprovalRequest = {
        id: `request-${asked}`,
        attempt: 1,
        hook: `hook-${asked}`,
        flow: `flow-${asked}`,
        task: `task-${asked}`,
        key: 'deploy',
        tool: 'deploy',
        args: { version: '1.2.3' },
        caller: { issuer: LOGIN, subject: 'erin' },
        from: ['release-managers'],
        message: 'Deploy 1.2.3 to production?',
        details: { version: '1.2.3', commit: 'abc' },
        until: time + 86_400_000,
        quorum: 1,
        denials: 1,
        allowSelf: false,
        passNote: false,
        ...changes,
      }
      await approvals.approver?.open(request)
      return request
    },
    async decide(id, as, decision, note = '', show) {
      const page = await (await visit(`/r/${id}`, as)).text()
      // A form that was open before the page showed none is as good as one that is there.
      const held = await host.seal(
        'form',
        JSON.stringify({ issuer: LOGIN, subject: as, expires: host.now() + 60_000 }),
      )
      const csrf = /name="csrf" value="([^"]+)"/.exec(page.slice(page.indexOf('<main')))?.[1] ?? held
      const body = new URLSearchParams({ csrf, decision, note, ...(show && { show }) })
      const response = await visit(`/r/${id}`, as, { method: 'POST', body, headers: { origin: ORIGIN } })
      return response.text()
    },
    close: async () => void (await stop?.()),
  }
}
