/** Drive tools round by round, with no socket: `rondo/testing`. */

export { type BenchOptions, type BenchSetup, createBench, type TestBench } from './testing/bench.ts'
export type { TestCall } from './testing/call.ts'
export { cancel, decline, type Script, type ScriptedAnswer } from './testing/call.ts'
export type { TestRound } from './testing/exchange.ts'
export type { TaskRound, TestTask } from './testing/task.ts'
