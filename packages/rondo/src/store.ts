/** For those who write a store: `rondo/store`. What it must do is tested by `@rondo/store-kit`. */

export { changeRows, type RowsChange, type TaskRow } from './store/memory/tasks.ts'
export { createEpoch } from './store/store.ts'
export { createHintBus, type HintBus } from './store/task-store.ts'
