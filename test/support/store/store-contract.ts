/** The public contract as tests of vitest. */

import { describe, it } from 'vitest'
import {
  type ContractCase,
  type StoreContractOptions,
  type StoreHarness,
  storeContract,
  storeControls,
} from '../../../src/testing-store.ts'

export function describeStoreContract(harness: StoreHarness, options: StoreContractOptions = {}): void {
  describeCases([...storeContract(harness, options), ...storeControls(harness)])
}

/** One suite for each group. */
export function describeCases(cases: readonly ContractCase[]): void {
  for (const group of new Set(cases.map((one) => one.group)))
    describe(group, () => {
      for (const one of cases) if (one.group === group) it(one.name, one.run)
    })
}
