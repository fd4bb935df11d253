/** The contract that every store and every engine has to meet, for any test runner: `@rondo/store-kit`. */

export {
  alarmContract,
  approvalContract,
  engineContract,
  fleetContract,
  operatorContract,
  permitContract,
  type StoreContractOptions,
  storeContract,
} from './contract.ts'
export {
  alarmControls,
  approvalControls,
  engineControls,
  fleetControls,
  operatorControls,
  permitControls,
  storeControls,
} from './control.ts'
export type {
  ContractCase,
  ContractEngineOptions,
  EngineHarness,
  EngineSite,
  StoreHarness,
  StoreSite,
} from './harness.ts'
