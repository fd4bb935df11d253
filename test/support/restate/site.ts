/** Installations on one Restate for the contract of engines: each has services, a balancer and workers of its own. */

import { randomBytes } from 'node:crypto'
import { createServer } from 'node:net'
import type { EngineStore } from 'rondo/store'
import type { RunDelivered } from '../../../packages/restate/src/connection.ts'
import type { RestateStoreOptions } from '../../../packages/restate/src/index.ts'
import { assembleStore, type StoreParts } from '../../../packages/restate/src/store.ts'
import { createTaskObject, type ServiceNames } from '../../../packages/restate/src/task-object.ts'
import type { EngineHarness, EngineSite } from '../../../packages/store-kit/src/harness.ts'
import { type Balancer, startBalancer } from './balancer.ts'
import type { TestRestate } from './server.ts'

export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}

export interface RestateSite extends EngineSite {
  readonly balancer: Balancer
  readonly namespace: string
  /** Another handle, as another process would have. */
  store(options?: Partial<RestateStoreOptions>, parts?: Partial<StoreParts>): EngineStore
}

const PORTS = 4

export async function createSite(restate: TestRestate): Promise<RestateSite> {
  const namespace = `T${randomBytes(6).toString('hex')}`
  const balancer = await startBalancer()
  const ports = await Promise.all(Array.from({ length: PORTS }, freePort))
  const stores: EngineStore[] = []
  const store = (options: Partial<RestateStoreOptions> = {}, parts: Partial<StoreParts> = {}) => {
    const port = ports.pop()
    if (port === undefined) throw new Error(`A site has ${PORTS} handles`)
    balancer.add(port)
    const settings = {
      ingress: restate.ingress,
      admin: restate.admin,
      namespace,
      retryMs: 150_000,
      endpoint: { port, url: balancer.url, identityKeys: [restate.identityKey] },
      ...options,
    }
    const whole = {
      defineTask: (names: ServiceNames) => createTaskObject(names),
      deliver: (run: RunDelivered) => run,
      ...parts,
    }
    const made = assembleStore(settings, whole)
    stores.push(made)
    return made
  }
  return {
    namespace,
    balancer,
    store,
    open: ({ leaseMs: _, ...options }) => store().createEngine(options),
    /** Does what a worker does first, and nothing more. */
    async vanish(id, entries) {
      const call = async (handler: string, input: object) => {
        const url = `${restate.ingress[0]}/${namespace}Task/${id}/${handler}`
        const body = JSON.stringify({ at: Date.now(), ...input })
        const headers = { 'Content-Type': 'application/json' }
        const response = await fetch(url, { method: 'POST', body, headers })
        return (await response.json()) as unknown
      }
      const lease = (await call('claim', { wake: 1, worker: 'vanishes' })) as {
        fence: { epoch: number }
      } | null
      if (lease === null) throw new Error('The task was not due')
      await call('append', { epoch: lease.fence.epoch, from: 0, entries })
    },
    async close() {
      await Promise.all(stores.map((made) => made.close()))
      await balancer.close()
    },
  }
}

export function restateHarness(restate: () => TestRestate): EngineHarness {
  return { name: 'Restate', vanishes: true, create: () => createSite(restate()) }
}
