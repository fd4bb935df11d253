/**
 * A store over a key-value database with serializable transactions. Every method reads the values that it is about, changes
 * them with `changeRows`, and writes them, in one transaction. A real one would find tasks by index instead of reading all.
 */

import {
  type BlobStore,
  changeRows,
  createEpoch,
  createHintBus,
  type OnceClaim,
  type OnceSlot,
  type OnceStore,
  type Store,
  type TaskRow,
  type TaskStore,
} from 'rondo/store'

// #region database
/** The operations of the database. Transactions take effect one after the other, or not at all. */
export interface KeyValue {
  transaction<T>(body: (values: Values) => Promise<T>): Promise<T>
  close(): Promise<void>
}

export interface Values {
  get(key: string): Promise<string | undefined>
  /** All values whose keys begin with the prefix. */
  list(prefix: string): Promise<readonly string[]>
  put(key: string, value: string): Promise<void>
  delete(key: string): Promise<void>
}

// #endregion

interface Timed {
  readonly key: string
  readonly expiresAt: number
}

export function createKeyValueStore(database: KeyValue, now: () => number = Date.now): Store {
  const sweep = (limit: number) =>
    database.transaction(async (values) => {
      let gone = 0
      for (const prefix of ['task/', 'once/', 'blob/']) {
        const all = (await values.list(prefix)).map((text): Timed => JSON.parse(text))
        const expired = all.filter(({ expiresAt }) => expiresAt <= now()).slice(0, limit)
        for (const { key } of expired) await values.delete(key)
        gone += expired.length
      }
      return gone
    })
  return {
    kind: 'key-value',
    tasks: createTasks(database, now),
    once: createOnce(database, now),
    blobs: createBlobs(database, now),
    ready: async () => {},
    sweep,
    close: () => database.close(),
  }
}

function createTasks(database: KeyValue, now: () => number): TaskStore {
  const hints = createHintBus()
  // #region change
  /** Runs a method on the tasks with these ids, or on all tasks. */
  const change = async <T>(ids: readonly string[] | 'all', method: (tasks: TaskStore) => Promise<T>) => {
    const { result, hints: given } = await database.transaction(async (values) => {
      const found =
        ids === 'all'
          ? await values.list('task/')
          : await Promise.all([...new Set(ids)].map((id) => values.get(`task/${id}`)))
      const rows = found.flatMap((text): TaskRow[] => (text === undefined ? [] : [JSON.parse(text)]))
      const done = await changeRows(rows, now(), method)
      for (const row of done.changed) {
        const key = `task/${row.id}`
        await values.put(key, JSON.stringify({ ...row, key }))
      }
      for (const id of done.deleted) await values.delete(`task/${id}`)
      return done
    })
    // After the commit: whoever hears of a change must be able to read it.
    for (const hint of given) hints.publish(hint)
    return result
  }
  // #endregion
  // #region methods
  return {
    pollMs: 250,
    onHint: hints.onHint,
    // Counts the open tasks of its owner, so it reads more than its own row.
    create: (task, limit, taker) => change('all', (tasks) => tasks.create(task, limit, taker)),
    get: (id, owner) => change([id], (tasks) => tasks.get(id, owner)),
    deliver: (id, owner, answers, taker) => change([id], (tasks) => tasks.deliver(id, owner, answers, taker)),
    deliverHook: (id, ...rest) => change([id], (tasks) => tasks.deliverHook(id, ...rest)),
    slots: (id, owner) => change([id], (tasks) => tasks.slots(id, owner)),
    cancel: (id, owner) => change([id], (tasks) => tasks.cancel(id, owner)),
    confirm: (id, owner) => change([id], (tasks) => tasks.confirm(id, owner)),
    revisions: (ids) => change(ids, (tasks) => tasks.revisions(ids)),
    claim: (worker, leaseMs, count) => change('all', (tasks) => tasks.claim(worker, leaseMs, count)),
    renew: (fences, leaseMs) => change(fences.map(idOf), (tasks) => tasks.renew(fences, leaseMs)),
    held: (fences) => change(fences.map(idOf), (tasks) => tasks.held(fences)),
    append: (fence, from, entries) => change([fence.id], (tasks) => tasks.append(fence, from, entries)),
    status: (fence, message) => change([fence.id], (tasks) => tasks.status(fence, message)),
    publish: (fence, slots) => change([fence.id], (tasks) => tasks.publish(fence, slots)),
    park: (fence, ...rest) => change([fence.id], (tasks) => tasks.park(fence, ...rest)),
    settle: (fence, ending) => change([fence.id], (tasks) => tasks.settle(fence, ending)),
    release: (fence, delayMs, failed) => change([fence.id], (tasks) => tasks.release(fence, delayMs, failed)),
    hold: (fence) => change([fence.id], (tasks) => tasks.hold(fence)),
    trim: (owner, limits) => change('all', (tasks) => tasks.trim(owner, limits)),
    nextDueMs: (withinMs) => change('all', (tasks) => tasks.nextDueMs(withinMs)),
    stats: () => change('all', (tasks) => tasks.stats()),
    list: (query) => change('all', (tasks) => tasks.list(query)),
  }
  // #endregion
}

const idOf = ({ id }: { readonly id: string }) => id

interface OnceRow extends Timed {
  readonly digest: string
  readonly claimant: string
  readonly holdUntil: number
  readonly response?: string
}

function createOnce(database: KeyValue, now: () => number): OnceStore {
  const epochIn = async (values: Values): Promise<string> => {
    const known = await values.get('epoch')
    if (known === undefined) await values.put('epoch', createEpoch())
    return known ?? epochIn(values)
  }
  const within = <T>(
    { flow, round }: OnceSlot,
    body: (
      row: OnceRow | undefined,
      put: (row: Omit<OnceRow, 'key'>) => Promise<void>,
      values: Values,
    ) => Promise<T>,
  ) =>
    database.transaction(async (values) => {
      const key = `once/${JSON.stringify([flow, round])}`
      const text = await values.get(key)
      const put = (row: Omit<OnceRow, 'key'>) => values.put(key, JSON.stringify({ ...row, key }))
      return body(text === undefined ? undefined : JSON.parse(text), put, values)
    })
  return {
    epoch: () => database.transaction(epochIn),
    renewEpoch: () =>
      database.transaction(async (values) => {
        await values.delete('epoch')
        return epochIn(values)
      }),
    claim: (slot, { claimant, holdMs }) =>
      within(slot, async (row, put, values): Promise<OnceClaim> => {
        const { digest, expiresAt } = slot
        if (slot.epoch !== (await epochIn(values))) return { kind: 'refused', reason: 'epoch' }
        if (expiresAt <= now()) return { kind: 'refused', reason: 'expired' }
        if (row && row.digest !== digest) return { kind: 'refused', reason: 'used' }
        if (row?.response !== undefined) return { kind: 'stored', response: row.response }
        if (row && row.claimant !== claimant && row.holdUntil > now())
          return { kind: 'busy', retryMs: row.holdUntil - now() }
        await put({ digest, claimant, holdUntil: now() + holdMs, expiresAt })
        return { kind: 'first' }
      }),
    renew: (slot, { claimant, holdMs }) =>
      within(slot, async (row, put) => {
        if (row?.claimant !== claimant || row.response !== undefined) return false
        await put({ ...row, holdUntil: now() + holdMs })
        return true
      }),
    settle: (slot, response) =>
      within(slot, async (row, put) => {
        if (row?.digest !== slot.digest) return response
        if (row.response === undefined) await put({ ...row, response })
        return row.response ?? response
      }),
  }
}

function createBlobs(database: KeyValue, now: () => number): BlobStore {
  return {
    put: (id, sealed, expiresAt) =>
      database.transaction(async (values) => {
        const key = `blob/${id}`
        if ((await values.get(key)) === undefined)
          await values.put(key, JSON.stringify({ key, sealed, expiresAt }))
      }),
    get: (id) =>
      database.transaction(async (values) => {
        const text = await values.get(`blob/${id}`)
        if (text === undefined) return undefined
        const { sealed, expiresAt } = JSON.parse(text) as Timed & { sealed: string }
        return expiresAt > now() ? sealed : undefined
      }),
  }
}
