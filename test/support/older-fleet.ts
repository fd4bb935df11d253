/** Several servers of ours that share their keys, and clients of earlier eras that send each request to the next of them. */

import { generateKey, type ServerOptions, type Store } from 'rondo'
import type { Bus, RecordStore } from 'rondo/store'
import { connectOlder, type OlderClient, type OlderClientOptions } from './older-client.ts'
import { type OlderServer, startOlder } from './older-server.ts'

export interface OlderFleet {
  readonly instances: readonly OlderServer[]
  /** A client whose requests go to the instances in turn. */
  connect(options?: OlderClientOptions): Promise<OlderClient>
  /** Cuts an instance off from the records and the bus of the store: to the others it looks as if it had died. */
  vanish(index: number): void
  /** Connects it again. */
  appear(index: number): void
  /** The next request goes to this instance, and the one after it to the next. */
  route(index: number): void
}

const FORM = { elicitation: {} }

/** `optionsOf` returns the options of one instance, such as its handle of a shared store. */
export async function startFleet(
  count: number,
  optionsOf: (index: number) => Partial<ServerOptions> = () => ({}),
): Promise<OlderFleet> {
  const keys = generateKey()
  const instances: OlderServer[] = []
  const gone = new Set<number>()
  for (let index = 0; index < count; index++) {
    const options = optionsOf(index)
    const store = options.store && severable(options.store as Store, () => gone.has(index))
    instances.push(await startOlder({ keys, ...options, ...(store && { store }) }))
  }
  let next = 0
  const send = (request: Request): Promise<Response> => {
    const url = instances[next++ % count]?.url ?? ''
    return fetch(new Request(url, request))
  }
  return {
    instances,
    vanish: (index) => void gone.add(index),
    appear: (index) => void gone.delete(index),
    connect: (options) => connectOlder(instances[0]?.url ?? '', { capabilities: FORM, ...options }, send),
    route(index) {
      next = index
    },
  }
}

function severable(store: Store, isGone: () => boolean): Store {
  const { records, bus } = store
  if (!records || !bus) return store
  const check = (): void => {
    if (isGone()) throw new Error('cut off')
  }
  const guarded: RecordStore = {
    async get(id) {
      check()
      return records.get(id)
    },
    async put(record) {
      check()
      return records.put(record)
    },
    async touch(ids) {
      check()
      await records.touch(ids)
    },
    async remove(id) {
      check()
      await records.remove(id)
    },
  }
  const guardedBus: Bus = {
    async publish(message) {
      check()
      await bus.publish(message)
    },
    subscribe: (listener) =>
      bus.subscribe({
        receive: (messages) => (isGone() ? undefined : listener.receive(messages)),
        lost: () => (isGone() ? undefined : listener.lost()),
      }),
  }
  return { ...store, records: guarded, bus: guardedBus }
}
