/** Drive tools round by round, with no socket: `rondo/testing`. */

export { type BenchOptions, createBench, type TestBench } from './testing/bench.ts'
export { cancel, decline, type Script, type ScriptedAnswer } from './testing/script.ts'
export type { TestCall, TestRound } from './testing/test-call.ts'
