/** The ports of a SQLite file behind messages: the contract of every store, and a thread that dies. Real threads: `test/sqlite-thread.test.ts`. */

import { EventEmitter } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MessageChannel } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { describeStoreContract } from '../../../../../test/support/store/store-contract.ts'
import type { Database } from '../../../../../test/support/store/store-harness.ts'
import { RondoError } from '../../errors.ts'
import type { Store } from '../store.ts'
import { createFilePorts, toStore } from './store.ts'
import { connectThread, serveThread, type Thread } from './thread.ts'

interface LocalThread extends Thread {
  /** Ends it as a crash would, without another message. */
  die(): void
}

/** A thread whose code runs in this one, so that it can use the clock of a test. */
function startHere(file: string, now?: () => number): LocalThread {
  const { port1, port2 } = new MessageChannel()
  serveThread(port2, (defer) => createFilePorts(file, { now }, defer))
  const events = new EventEmitter()
  port1.on('message', (message) => events.emit('message', message))
  const die = () => {
    port1.close()
    port2.close()
    events.emit('exit', 1)
  }
  return Object.assign(events, {
    postMessage: (message: unknown) => port1.postMessage(message),
    ref: () => port1.ref(),
    unref: () => port1.unref(),
    async terminate() {
      die()
      return 1
    },
    die,
  }) as unknown as LocalThread
}

async function createDatabase(): Promise<Database> {
  const folder = await mkdtemp(join(tmpdir(), 'rondo-thread-'))
  const file = join(folder, 'tasks.db')
  const stores: Store[] = []
  return {
    address: { kind: 'sqlite', file },
    open(now) {
      const store = toStore(connectThread(() => startHere(file, now), createFilePorts(file, { now })))
      stores.push(store)
      return store
    },
    async close() {
      await Promise.all(stores.map((store) => store.close()))
      await rm(folder, { recursive: true })
    },
  }
}

describeStoreContract({ name: 'SQLite behind messages', create: createDatabase }, { modelRuns: 10 })

describe('a thread of a SQLite file', () => {
  let folder: string
  let threads: LocalThread[]
  let store: Store
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rondo-thread-'))
    const file = join(folder, 'tasks.db')
    threads = []
    const start = () => {
      const thread = startHere(file)
      threads.push(thread)
      return thread
    }
    store = toStore(connectThread(start, createFilePorts(file, {})))
  })
  afterEach(async () => {
    await store.close()
    await rm(folder, { recursive: true })
  })

  it('R11 fails what it has begun when it dies, and the next call starts another', async () => {
    const epoch = await store.once.epoch()
    const lost = [store.ready(), store.once.epoch()].map((call) => call.catch((error: unknown) => error))
    await new Promise(setImmediate)
    threads[0]?.die()
    for (const error of await Promise.all(lost)) expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE' })
    expect(await store.once.epoch()).toBe(epoch)
    expect(threads).toHaveLength(2)
  })

  it('announces changes after it was started again', async () => {
    await store.ready()
    const seen: unknown[] = []
    const stop = store.tasks.onHint(({ kind }) => void seen.push(kind))
    await store.ready()
    threads[0]?.die()
    const owner = { tenant: 't', principal: 'p' }
    await store.tasks.create({ id: 'a'.repeat(22), owner, head: '', ttlMs: 60_000, pollMs: 10 }, 1)
    await expect.poll(() => seen).toContain('due')
    stop()
  })

  it('passes on errors with their code and their class', async () => {
    const broken = toStore(connectThread(() => startHere(folder), createFilePorts(folder, {})))
    await expect(broken.ready()).rejects.toBeInstanceOf(RondoError)
    await expect(broken.ready()).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    await broken.close()
    await expect(broken.ready()).rejects.toThrow(/This store is closed/)
  })

  it('R11 refuses an argument that no message can carry', async () => {
    const id = (() => {}) as unknown as string
    await expect(store.blobs.get(id)).rejects.toThrow(/could not be cloned/)
    expect(await store.once.epoch()).toMatch(/./)
  })

  it('is not started by a store that is closed without having been used', async () => {
    store.tasks.onHint(() => {})()
    await store.close()
    await new Promise(setImmediate)
    expect(threads).toHaveLength(0)
  })
})
