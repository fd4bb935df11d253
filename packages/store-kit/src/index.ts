/** The contract that every store and every engine has to meet, for any test runner: `@rondo/store-kit`. */

export type {
  AnsweredSlot,
  RunTurn,
  ServeOptions,
  Serving,
  SlotChange,
  SlotName,
  TaskEngine,
  TaskPage,
  TaskTurn,
  TaskTurnOutcome,
  WatchTask,
} from 'rondo'
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
