/** The public contract as tests of vitest. */

import { describe, it } from 'vitest'
import {
  alarmContract,
  alarmControls,
  approvalContract,
  approvalControls,
  type ContractCase,
  fleetContract,
  fleetControls,
  operatorContract,
  operatorControls,
  permitContract,
  permitControls,
  type StoreContractOptions,
  type StoreHarness,
  storeContract,
  storeControls,
} from '../../../packages/store-kit/src/index.ts'

/** With the parts for a fleet, for approvals, for operators, for permits and for alarms, which all of ours have. */
export function describeStoreContract(harness: StoreHarness, options: StoreContractOptions = {}): void {
  const fleet = [...fleetContract(harness), ...fleetControls(harness)]
  const approvals = [...approvalContract(harness), ...approvalControls(harness)]
  const operators = [...operatorContract(harness), ...operatorControls(harness)]
  describeCases([
    ...storeContract(harness, options),
    ...storeControls(harness),
    ...fleet,
    ...approvals,
    ...operators,
    ...permitContract(harness, options),
    ...permitControls(harness),
    ...alarmContract(harness),
    ...alarmControls(harness),
  ])
}

/** One suite for each group. */
export function describeCases(cases: readonly ContractCase[]): void {
  for (const group of new Set(cases.map((one) => one.group)))
    describe(group, () => {
      for (const one of cases) if (one.group === group) it(one.name, one.run)
    })
}
