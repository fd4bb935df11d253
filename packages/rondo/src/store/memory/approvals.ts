/** Approvals in the memory of one process. */

import {
  type ApprovalRow,
  type ApprovalStore,
  type ApprovalWrite,
  type ChainEntry,
  chainAfter,
  NO_ENTRY,
} from '../approvals.ts'

interface Request extends ApprovalRow {
  readonly tenant: string
  readonly write: string
  readonly labels: readonly string[]
  readonly expiresAt: number
}

interface Job {
  readonly tenant: string
  readonly request: string
  readonly name: string
  dueAt: number
  attempts: number
  epoch: number
}

const keyOf = (...parts: readonly string[]): string => JSON.stringify(parts)

/** By time, then by id. */
const inOrder = (a: { createdAt: number; id: string }, b: { createdAt: number; id: string }): number =>
  a.createdAt - b.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)

export function createMemoryApprovals(now: () => number): {
  readonly port: ApprovalStore
  sweep(limit: number): number
} {
  const rows = new Map<string, Request>()
  const jobs = new Map<string, Job>()
  const chains = new Map<string, { seq: number; hash: string; readonly entries: ChainEntry[] }>()
  let epochs = 0
  const find = (tenant: string, id: string): Request | undefined => {
    const row = rows.get(keyOf(tenant, id))
    return row !== undefined && row.expiresAt > now() ? row : undefined
  }
  const chainOf = (tenant: string) => {
    const chain = chains.get(tenant) ?? { ...NO_ENTRY, entries: [] }
    chains.set(tenant, chain)
    return chain
  }
  const append = (tenant: string, made: readonly ChainEntry[]) => {
    const chain = chainOf(tenant)
    chain.entries.push(...made)
    const { seq, hash } = made.at(-1) ?? chain
    Object.assign(chain, { seq, hash })
    return { seq, hash }
  }
  const setJobs = ({ tenant, id, jobs: given = [] }: ApprovalWrite): void => {
    for (const { name, dueAt, attempts = 0 } of given) {
      const key = keyOf(tenant, id, name)
      if (dueAt === null) jobs.delete(key)
      else jobs.set(key, { tenant, request: id, name, dueAt, attempts, epoch: ++epochs })
    }
  }
  const put: ApprovalStore['put'] = async (write) => {
    const { tenant, id, version, done, entries = [], labels, sealed, createdAt } = write
    const row = find(tenant, id)
    if (row?.version === version + 1 && row.write === write.write) return { kind: 'stored' }
    if ((row?.version ?? 0) !== version) return { kind: 'conflict' }
    if (done && jobs.get(keyOf(tenant, id, done.name))?.epoch !== done.epoch) return { kind: 'conflict' }
    const made = chainAfter(chainOf(tenant), entries)
    if (done) jobs.delete(keyOf(tenant, id, done.name))
    setJobs(write)
    const expiresAt = write.expiresAt ?? Number.POSITIVE_INFINITY
    const next = { tenant, id, version: version + 1, write: write.write, sealed, expiresAt }
    rows.set(keyOf(tenant, id), { ...next, createdAt: row?.createdAt ?? createdAt, labels: [...labels] })
    return made.length === 0 ? { kind: 'stored' } : { kind: 'stored', head: append(tenant, made) }
  }
  const list: ApprovalStore['list'] = async ({ tenant, label, after, limit, newestFirst }) => {
    const direction = newestFirst ? -1 : 1
    return [...rows.values()]
      .filter((row) => row.tenant === tenant && row.labels.includes(label) && row.expiresAt > now())
      .filter((row) => !after || direction * inOrder(row, after) > 0)
      .sort((a, b) => direction * inOrder(a, b))
      .slice(0, limit)
      .map(toRow)
  }
  const claim: ApprovalStore['claim'] = async (tenant, leaseMs, limit) => {
    const due = [...jobs.values()].filter((job) => job.tenant === tenant && job.dueAt <= now())
    const claimed = due.sort((a, b) => a.dueAt - b.dueAt).slice(0, limit)
    return claimed.map((job) => {
      Object.assign(job, { dueAt: now() + leaseMs, attempts: job.attempts + 1, epoch: ++epochs })
      const { request, name, attempts, epoch } = job
      return { request, name, attempts, epoch }
    })
  }
  const port: ApprovalStore = {
    now: async () => now(),
    get: async (tenant, id) => {
      const row = find(tenant, id)
      return row && toRow(row)
    },
    put,
    list,
    claim,
    async labels(tenant, prefix, limit) {
      const alive = [...rows.values()].filter((row) => row.tenant === tenant && row.expiresAt > now())
      const named = alive.flatMap((row) => row.labels).filter((label) => label.startsWith(prefix))
      return [...new Set(named)].sort().slice(0, limit)
    },
    tenants: async () => [...chains].filter(([, { seq }]) => seq > 0).map(([tenant]) => tenant),
    async head(tenant) {
      const chain = chains.get(tenant)
      return chain && chain.seq > 0 ? { seq: chain.seq, hash: chain.hash } : undefined
    },
    entries: async (tenant, after, limit) =>
      (chains.get(tenant)?.entries ?? []).filter(({ seq }) => seq > after).slice(0, limit),
    async prune(tenant, through, checkpoint) {
      const chain = chainOf(tenant)
      const last = chain.entries.find(({ seq }) => seq === through)
      if (last === undefined) return undefined
      const made = chainAfter(chain, [checkpoint({ seq: last.seq, hash: last.hash })])
      chain.entries.splice(0, chain.entries.indexOf(last) + 1)
      return append(tenant, made)
    },
  }
  const sweep = (limit: number): number => {
    const gone = [...rows].filter(([, row]) => row.expiresAt <= now()).slice(0, limit)
    for (const [key, { tenant, id }] of gone) {
      rows.delete(key)
      for (const [name, job] of jobs) if (job.tenant === tenant && job.request === id) jobs.delete(name)
    }
    return gone.length
  }
  return { port, sweep }
}

const toRow = ({ id, version, sealed, createdAt }: Request): ApprovalRow => ({
  id,
  version,
  sealed,
  createdAt,
})
