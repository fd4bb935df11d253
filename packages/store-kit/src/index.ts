/** The contract that every store and every engine has to meet, for any test runner: `@rondo/store-kit`. */

export {
  engineContract,
  fleetContract,
  type StoreContractOptions,
  storeContract,
} from './contract.ts'
export { engineControls, fleetControls, storeControls } from './control.ts'
export type {
  ContractCase,
  ContractEngineOptions,
  EngineHarness,
  EngineSite,
  StoreHarness,
  StoreSite,
} from './harness.ts'
