/**
 * Pieces that the packages `@rondo/cli`, `@rondo/restate` and `@rondo/store-kit` share with the runtime. Not documented, and without any
 * promise: these packages depend on exactly this version.
 */

export { workOnce } from './carry/single-use.ts'
export { labelTags } from './carry/task/label.ts'
export { branchBefore, type OpenedTask, openTask, sealFailure } from './carry/task/operate.ts'
export { HANDSHAKE_VERSIONS, hasRounds } from './client/dialect.ts'
export { readIssuer, readProtection } from './client/oauth/discovery.ts'
export { type DoctorTokens, openLogins } from './client/oauth/oauth.ts'
export { canonical } from './client/oauth/options.ts'
export { createSafeFetch } from './client/oauth/safe-fetch.ts'
export { becomeTask, begin, delivered } from './client/pending.ts'
export { applyPolicies } from './client/policy.ts'
export { answerProblem, QUESTION_KINDS } from './client/question.ts'
export { vetRound } from './client/round.ts'
export { parseChallenges, parseMessage } from './client/transport/response-reader.ts'
export { createStdioTransport } from './client/transport/stdio.ts'
export { misuse, nearest } from './errors.ts'
export { escapeUnsafe, oneLine } from './form/clean-text.ts'
export { isLoopback, LOOPBACK_NAMES } from './lib/address.ts'
export { readNodeBody } from './lib/body.ts'
export { repeat, type StoreClock, sleep, storeClock, systemClock } from './lib/clock.ts'
export { collectBytes } from './lib/collection.ts'
export { isRecord } from './lib/json.ts'
export { clock, defineOptions, number, type OptionsOf, text, unchecked } from './options.ts'
export { encodeHeaderValue, scanParamHeaders } from './protocol/common/headers.ts'
export { TASKS_EXTENSION } from './protocol/reply.ts'
export { hasVersionHeader, LATEST_VERSION, SESSION_VERSIONS } from './protocol/revisions.ts'
export { openEnvelope } from './seal/envelope.ts'
export { type Claims, decodeClaims, STATE_LIMITS } from './seal/state.ts'
export { tagsOf } from './seal/tag.ts'
export {
  type Development,
  develop,
  loadInDevelopment,
  mountedHere,
  type TracedOperation,
  type UnendedRound,
} from './serve/development.ts'
export { approverOf, routesOf } from './serve/extension.ts'
export { createAllowList } from './serve/http/admission.ts'
export { toListenError } from './serve/http/listen.ts'
export { BUS_LIMITS } from './store/bus.ts'
export { report, settled } from './store/engine/claim-loop.ts'
export { assertTask, createLeaseEngine, createWatch, storable } from './store/engine/lease-engine.ts'
export { journalTooLarge, type RunningTurn, runTurn, type TurnStore } from './store/engine/run-turn.ts'
export { closeSlots, givenAnswers, openSlots } from './store/input-slots.ts'
export { createMemoryStore } from './store/memory/store.ts'
export {
  createMemoryTable,
  createMemoryTasks,
  type MemoryTable,
  take,
  toSummary,
} from './store/memory/tasks.ts'
export { RECORD_BYTES } from './store/store.ts'
export { createTaskId, isTaskId } from './store/task-engine.ts'
export { ENDED_BYTES } from './store/task-store.ts'
