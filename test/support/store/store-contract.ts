/** Everything a database has to do, as one suite. */

import { describe } from 'vitest'
import { describeEngineContract } from './engine-contract.ts'
import { describeModelContract } from './model-contract.ts'
import { describeOnceContract } from './once-contract.ts'
import { describeOperatorContract } from './operator-contract.ts'
import { describeOwnerContract } from './owner-contract.ts'
import { describeProcessContract } from './process-contract.ts'
import { describeRaceContract } from './race-contract.ts'
import type { StoreHarness } from './store-harness.ts'
import { describeTimeContract } from './time-contract.ts'
import { describeWorkerContract } from './worker-contract.ts'

export function describeStoreContract(harness: StoreHarness, modelRuns: number): void {
  describe(`${harness.name}: owners`, () => describeOwnerContract(harness))
  describe(`${harness.name}: workers`, () => describeWorkerContract(harness))
  describe(`${harness.name}: time`, () => describeTimeContract(harness))
  describe(`${harness.name}: races`, () => describeRaceContract(harness))
  describe(`${harness.name}: operators`, () => describeOperatorContract(harness))
  describe(`${harness.name}: once and blobs`, () => describeOnceContract(harness))
  describe(`${harness.name}: model`, () => describeModelContract(harness, modelRuns))
  describe(`${harness.name}: engine`, () => describeEngineContract(harness))
  if (harness.processes) describe(`${harness.name}: processes`, () => describeProcessContract(harness))
}
