/**
 * The `ctx` a handler gets: each call is a thin name for a question, a piece of work, or a fact of the request.
 */

import { InputCancelled, InputDeclined } from '../errors.ts'
import type { Line, Principal } from '../protocol/call.ts'
import { supports } from '../protocol/capability.ts'
import { type InputResponses, LOG_LEVELS, type LogLevel, type Root } from '../protocol/wire.ts'
import type { Context, EffectInfo, Outcome, StepInfo } from '../tool/context.ts'
import { ask } from './ask.ts'
import { confirmQuestion, formQuestion, rootsQuestion, samplingQuestion, urlQuestion } from './question.ts'
import type { RunState } from './run-state.ts'
import { work } from './work.ts'

/** How a run stands to tasks. */
export interface Background {
  /** This run can leave its request and go on as a task. */
  readonly possible: boolean
  /** Tells whoever follows the task how it goes. */
  tell(message: string): void
}

/** Rounds, where nothing can be told and nothing be left. */
export const FOREGROUND: Background = { possible: false, tell: () => {} }
export const CAN_LEAVE: Background = { possible: true, tell: () => {} }

/** What the request says about itself, for the handler to read. */
export interface Scene {
  readonly flow: string
  readonly round: number
  readonly principal: Principal | undefined
  readonly client: Context['client']
  readonly protocolVersion: string
  readonly line: Line
  readonly progressToken?: string | number
  readonly logLevel?: LogLevel
  readonly background: Background
  /** Runs an effect unless the store has its result. */
  once?(key: string, act: () => unknown): Promise<unknown>
  readonly inputResponses: InputResponses | undefined
  readonly requestState: string | undefined
}

export type Deferred = () => void | Promise<void>

export function createContext(run: RunState, scene: Scene, deferred: Deferred[]): Context {
  const elicit = async (key: string, question: Parameters<Context['elicit']>[1]): Promise<Outcome<never>> =>
    (await ask(run, key, formQuestion(question))) as Outcome<never>
  return {
    elicit,
    ask: async (key, question) => contentOf(key, await elicit(key, question)),
    async confirm(key, message, options) {
      const outcome = (await ask(run, key, confirmQuestion(message, options))) as Outcome<boolean>
      return outcome.action === 'accept' && outcome.content === true
    },
    async visit(key, page) {
      contentOf(key, (await ask(run, key, urlQuestion(page))) as Outcome<unknown>)
    },
    sample: async (key, params) => (await ask(run, key, samplingQuestion(params))) as never,
    roots: async (key = 'roots') => (await ask(run, key, rootsQuestion())) as readonly Root[],

    step: async (key, fn) => (await work(run, 'step', key, () => fn(stepInfo(run)))) as never,
    effect: async (key, fn, { once } = {}) => {
      const act = (): unknown => fn(effectInfo(run, key))
      return (await work(run, 'effect', key, once ? () => onceOf(scene)(key, act) : act)) as never
    },
    checkpoint: () =>
      new Promise((resolve) => {
        run.turn.enqueue({ key: 'ctx.checkpoint()', strict: false, passing: true, begin: resolve })
      }),
    background: () =>
      new Promise((resolve) => {
        const leaving = scene.background.possible ? true : undefined
        run.turn.enqueue({ key: 'ctx.background()', strict: false, passing: true, leaving, begin: resolve })
      }),
    status: (message) => scene.background.tell(message),

    now: () => run.turn.now,
    uuid: (name) => toUuid(draw(run, 'uuid', name)),
    random: (name) => toFraction(draw(run, 'random', name)),

    progress: (progress, total, message) => tellProgress(run, scene, { progress, total, message }),
    log: (level, data, logger) => tellLog(scene, level, data, logger),
    get signal() {
      return run.signal()
    },
    defer: (fn) => void deferred.push(fn),

    principal: scene.principal,
    client: scene.client,
    protocolVersion: scene.protocolVersion,
    round: scene.round,
    flow: scene.flow,
    can: (kind) => supports(scene.client.capabilities, kind),
    inputResponses: scene.inputResponses,
    requestState: scene.requestState,
  }
}

/** The content of an accepted question; a decline or a cancel throws. */
function contentOf<T>(key: string, outcome: Outcome<T>): T {
  if (outcome.action === 'decline') throw new InputDeclined(key)
  if (outcome.action === 'cancel') throw new InputCancelled(key)
  return outcome.content
}

function onceOf({ once }: Scene): NonNullable<Scene['once']> {
  if (once) return once
  throw new TypeError('An effect with { once: true } needs a store: createServer({ store }).')
}

function stepInfo(run: RunState): StepInfo {
  return {
    get signal() {
      return run.signal()
    },
  }
}

function effectInfo(run: RunState, key: string): EffectInfo {
  return {
    key: toHex(run.platform.derive(run.seed, `effect:${key}`)).slice(0, 32),
    get signal() {
      return run.signal()
    },
  }
}

/** Bytes for the nth drawing of the flow, or for a named one. */
function draw(run: RunState, kind: string, name: string | undefined): Uint8Array {
  const label = name === undefined ? `#${run.tally.drawn++}` : `:${name}`
  return run.platform.derive(run.seed, kind + label)
}

function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** A UUID of version 4 from given bytes. */
function toUuid(bytes: Uint8Array): string {
  const hex = toHex(bytes)
  const variant = ((Number.parseInt(hex[16] ?? '0', 16) & 3) | 8).toString(16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

function toFraction(bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  return (view.getUint32(0) * 2 ** 21 + (view.getUint32(4) >>> 11)) / 2 ** 53
}

function tellProgress(
  run: RunState,
  { line, progressToken }: Scene,
  { progress, total, message }: { progress: number; total?: number; message?: string },
): void {
  // The wire wants it strictly growing; a replayed handler reports its past again, and nobody wants to hear it twice.
  if (progressToken === undefined || run.turn.ended || !(progress > run.tally.progress)) return
  run.tally.progress = progress
  line.notify('notifications/progress', { progressToken, progress, total, message })
}

function tellLog({ line, logLevel }: Scene, level: LogLevel, data: unknown, logger?: string): void {
  if (logLevel === undefined || LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(logLevel)) return
  line.notify('notifications/message', { level, data, logger })
}
