/** Everything that a store or an engine has to do, as lists of cases: `rondo/testing/store`. */

import { createLeaseEngine } from '../../store/engine/lease-engine.ts'
import { testSeed } from '../seeded-random.ts'
import { describeEngineContract } from './engine.ts'
import { describeBusContract, describeRecordContract } from './fleet.ts'
import type { EngineHarness, StoreHarness } from './harness.ts'
import { describeModelContract } from './model.ts'
import { describeOnceContract } from './once.ts'
import { describeOperatorContract } from './operator.ts'
import { describeOwnerContract } from './owner.ts'
import { describeRaceContract } from './race.ts'
import { type ContractCase, collect } from './suite.ts'
import { describeTimeContract } from './time.ts'
import { describeWorkerContract } from './worker.ts'

export interface StoreContractOptions {
  /** How many random sequences of operations are compared with the in-memory store. Default: 10. */
  readonly modelRuns?: number
  /** The seed of the first sequence, to repeat a failure, which names it. Default: `RONDO_SEED`, or a new one. */
  readonly seed?: number
}

/** What a store must do. Run every case with your test runner; each creates and closes a database of its own. */
export function storeContract(
  harness: StoreHarness,
  { modelRuns = 10, seed = testSeed() }: StoreContractOptions = {},
): readonly ContractCase[] {
  const { name } = harness
  return [
    ...collect(`${name}: owners`, () => describeOwnerContract(harness)),
    ...collect(`${name}: workers`, () => describeWorkerContract(harness)),
    ...collect(`${name}: time`, () => describeTimeContract(harness)),
    ...collect(`${name}: races`, () => describeRaceContract(harness)),
    ...collect(`${name}: operators`, () => describeOperatorContract(harness)),
    ...collect(`${name}: once and blobs`, () => describeOnceContract(harness)),
    ...collect(`${name}: model`, () => describeModelContract(harness, modelRuns, seed)),
    ...engineContract(leaseEngineHarness(harness)),
  ]
}

/** What the optional parts for a fleet must do: `records` and `bus`. Run it if your store has them. */
export function fleetContract(harness: StoreHarness): readonly ContractCase[] {
  const { name } = harness
  return [
    ...collect(`${name}: records`, () => describeRecordContract(harness)),
    ...collect(`${name}: bus`, () => describeBusContract(harness)),
  ]
}

/** What an engine must do, whether or not a store is behind it. */
export function engineContract(harness: EngineHarness): readonly ContractCase[] {
  return collect(`${harness.name}: engine`, () => describeEngineContract(harness))
}

/** The built-in engine over a store. */
export function leaseEngineHarness({ name, create }: StoreHarness): EngineHarness {
  return {
    name,
    vanishes: true,
    async create() {
      const site = await create()
      return {
        open: (options) => createLeaseEngine(site.open(), options),
        async vanish(id, entries) {
          const { tasks } = site.open()
          const [lease] = await tasks.claim('vanishes', 300, 1)
          if (lease?.fence.id !== id) throw new Error('The task was not due')
          await tasks.append(lease.fence, 0, entries)
        },
        close: site.close,
      }
    },
  }
}
