/** Drives tools round by round in tests, without a socket: `rondo/testing`. */

export type { LogEvent } from './log/event.ts'
export type { Principal } from './protocol/call.ts'
export type { ClientCapabilities, InputRequest, InputRequests } from './protocol/wire.ts'
export type { ServerOptions } from './serve/options.ts'
export type { Server } from './serve/server.ts'
export {
  type BenchOptions,
  type BenchServer,
  type BenchSetup,
  type CallOptions,
  createBench,
  importBench,
  type TestBench,
} from './testing/bench.ts'
export type { TestCall, TestRound } from './testing/call.ts'
export { cancel, decline, type Script, type ScriptedAnswer } from './testing/call.ts'
export type { TaskRound, TestDecision, TestTask } from './testing/task.ts'
export type { Voter } from './tool/approval.ts'
