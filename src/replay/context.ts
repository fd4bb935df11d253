/**
 * The `ctx` a handler gets: each call is a thin name for a question, a piece of work, or a fact of the request.
 */

import { InputCancelled, InputDeclined, misuse } from '../errors.ts'
import type { Line, Principal } from '../protocol/call.ts'
import { supports } from '../protocol/common/request.ts'
import { type InputResponses, LOG_LEVELS, type LogLevel, type Root } from '../protocol/wire.ts'
import type { Context, EffectInfo, Outcome, Question, StepInfo } from '../tool/context.ts'
import { ask } from './ask.ts'
import { branchOf, drawFraction, drawUuid, effectKey } from './draw.ts'
import { operate, throwIfNested } from './operation.ts'
import { confirmQuestion, formQuestion, rootsQuestion, samplingQuestion, urlQuestion } from './question.ts'
import { noteNews, type RunState } from './run-state.ts'
import type { Work } from './turn.ts'
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
  /** Runs an effect unless the store has its result. `branch` is what the client had said when it was called. */
  once?(key: string, branch: string, act: () => unknown): Promise<unknown>
  readonly inputResponses: InputResponses | undefined
  readonly requestState: string | undefined
}

export type Deferred = () => void | Promise<void>

export function createContext(run: RunState, scene: Scene, deferred: Deferred[]): Context {
  return new RunContext(run, scene, deferred)
}

/**
 * A class, because `signal` is made when somebody looks at it, and a getter in an object literal would give every `ctx`
 * a shape of its own, which costs more than the rest of a run. Functions are bound: an author may take `ctx` apart.
 */
class RunContext implements Context {
  readonly #run: RunState
  readonly #scene: Scene
  readonly #deferred: Deferred[]

  constructor(run: RunState, scene: Scene, deferred: Deferred[]) {
    this.#run = run
    this.#scene = scene
    this.#deferred = deferred
    this.principal = scene.principal
    this.client = scene.client
    this.protocolVersion = scene.protocolVersion
    this.round = scene.round
    this.flow = scene.flow
  }

  readonly principal: Context['principal']
  readonly client: Context['client']
  readonly protocolVersion: string
  readonly round: number
  readonly flow: string

  readonly elicit: Context['elicit'] = (key, question) =>
    this.#operate('question', key, async () => (await this.#elicit(key, question)) as Outcome<never>)
  readonly ask: Context['ask'] = (key, question) =>
    this.#operate('question', key, async () => contentOf(key, await this.#elicit(key, question)) as never)
  readonly confirm: Context['confirm'] = (key, message, options) =>
    this.#operate('question', key, async () => {
      const outcome = (await ask(this.#run, key, confirmQuestion(message, options))) as Outcome<boolean>
      return outcome.action === 'accept' && outcome.content === true
    })
  readonly visit: Context['visit'] = (key, page) =>
    this.#operate('question', key, async () => {
      contentOf(key, (await ask(this.#run, key, urlQuestion(page))) as Outcome<unknown>)
    })
  readonly sample: Context['sample'] = (key, params) =>
    this.#operate('question', key, async () => (await ask(this.#run, key, samplingQuestion(params))) as never)
  readonly roots: Context['roots'] = (key = 'roots') =>
    this.#operate(
      'question',
      key,
      async () => (await ask(this.#run, key, rootsQuestion())) as readonly Root[],
    )

  readonly step: Context['step'] = (key, fn) =>
    this.#operate(
      'step',
      key,
      async () => (await work(this.#run, 'step', key, () => fn(new WorkInfo(this.#run)))) as never,
    )
  readonly effect: Context['effect'] = (key, fn, { once } = {}) =>
    this.#operate('effect', key, async () => {
      // As it is now: an answer that comes before the effect begins, or while it runs, must not change its key.
      const branch = this.#run.record.find(key) ? '' : branchOf(this.#run)
      const act = (): unknown => fn(new EffectWorkInfo(this.#run, effectKey(this.#run, key, branch)))
      const fenced = once ? () => onceOf(this.#scene)(key, branch, act) : act
      return (await work(this.#run, 'effect', key, fenced)) as never
    })
  readonly checkpoint: Context['checkpoint'] = () => this.#pass('checkpoint', {})
  readonly background: Context['background'] = () =>
    this.#pass('background', this.#scene.background.possible ? { leaving: true } : {})
  readonly status: Context['status'] = (message) => {
    if (isNews(this.#run)) this.#scene.background.tell(message)
  }

  readonly now: Context['now'] = () => this.#run.turn.now()
  readonly uuid: Context['uuid'] = (name) => drawUuid(this.#run, name)
  readonly random: Context['random'] = (name) => drawFraction(this.#run, name)

  readonly progress: Context['progress'] = (progress, total, message) =>
    tellProgress(this.#run, this.#scene, { progress, total, message })
  readonly log: Context['log'] = (level, data, logger) => {
    if (isNews(this.#run)) tellLog(this.#scene, level, data, logger)
  }
  readonly defer: Context['defer'] = (fn) => {
    if (!this.#run.turn.ended()) this.#deferred.push(fn)
    else throwIfNested(this.#run, 'ctx.defer()')
  }
  readonly can: Context['can'] = (kind) => supports(this.#scene.client.capabilities, kind)

  get signal(): AbortSignal {
    return this.#run.signal()
  }

  /** Reading either is being told: it counts for the keys of effects, and what is said then is news. */
  get inputResponses(): Context['inputResponses'] {
    const { inputResponses } = this.#scene
    for (const [key, answer] of Object.entries(inputResponses ?? {})) this.#give(`manual:${key}`, answer)
    return inputResponses
  }
  get requestState(): string | undefined {
    const { requestState } = this.#scene
    if (requestState !== undefined) this.#give('state', requestState)
    return requestState
  }

  #give(name: string, answer: unknown): void {
    noteNews(this.#run)
    if (!this.#run.given.has(name)) this.#run.given.set(name, { answer })
  }

  #operate<T>(kind: string, key: string, begin: () => Promise<T>): Promise<T> {
    return operate(this.#run, `${kind} "${String(key)}"`, begin)
  }

  #elicit(key: string, question: Question): Promise<Outcome<unknown>> {
    return ask(this.#run, key, formQuestion(question, this.#run.limits)) as Promise<Outcome<unknown>>
  }

  /** A place to stop at, which otherwise lets through. */
  #pass(name: string, { leaving }: Pick<Work, 'leaving'>): Promise<void> {
    const key = `ctx.${name}()`
    return operate(
      this.#run,
      key,
      () =>
        new Promise((resolve) => {
          this.#run.turn.enqueue({ key, strict: false, passing: true, leaving, begin: resolve })
        }),
    )
  }
}

/** What a step is told. */
class WorkInfo implements StepInfo {
  readonly #run: RunState

  constructor(run: RunState) {
    this.#run = run
  }

  get signal(): AbortSignal {
    return this.#run.signal()
  }
}

/** What an effect is told: also its idempotency key. */
class EffectWorkInfo extends WorkInfo implements EffectInfo {
  readonly key: string

  constructor(run: RunState, key: string) {
    super(run)
    this.key = key
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
  throw misuse('An effect with { once: true } needs a store: createServer({ store }).')
}

/** False while the handler only comes back to where an earlier run has been: what it says was said then. */
function isNews({ tally }: RunState): boolean {
  return tally.past === 0
}

function tellProgress(
  run: RunState,
  { line, progressToken }: Scene,
  { progress, total, message }: { progress: number; total?: number; message?: string },
): void {
  // The wire wants it strictly growing; a replayed handler reports its past again, and nobody wants to hear it twice.
  if (progressToken === undefined || run.turn.ended() || !(progress > run.tally.progress)) return
  run.tally.progress = progress
  line.notify('notifications/progress', { progressToken, progress, total, message })
}

function tellLog({ line, logLevel }: Scene, level: LogLevel, data: unknown, logger?: string): void {
  if (logLevel === undefined || LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(logLevel)) return
  line.notify('notifications/message', { level, data, logger })
}
