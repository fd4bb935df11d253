/** The contract that every store and every engine has to meet, for any test runner: `rondo/testing/store`. */

export type { AnsweredSlot, SlotChange, SlotName } from './store/input-slots.ts'
export type {
  RunTurn,
  ServeOptions,
  Serving,
  TaskEngine,
  TaskPage,
  TaskTurn,
  TaskTurnOutcome,
  WatchTask,
} from './store/task-engine.ts'
export {
  engineContract,
  fleetContract,
  type StoreContractOptions,
  storeContract,
} from './testing/store/contract.ts'
export { engineControls, fleetControls, storeControls } from './testing/store/control.ts'
export type {
  ContractCase,
  ContractEngineOptions,
  EngineHarness,
  EngineSite,
  StoreHarness,
  StoreSite,
} from './testing/store/harness.ts'
