/** Drive tools round by round, with no socket: `rondo/testing`. */

export { type BenchOptions, type BenchSetup, createBench, type TestBench } from './testing/bench.ts'
export type { TestRound } from './testing/exchange.ts'
export { cancel, decline, type Script, type ScriptedAnswer } from './testing/script.ts'
export type { TestCall } from './testing/test-call.ts'
export type { TaskRound, TestTask } from './testing/test-task.ts'
