/**
 * The `ctx` of a handler. Its members are thin: a question (`ask.ts`), a step or an effect (`work.ts`), a value derived
 * from the flow's seed and so the same on every replay, a notification, or a fact about the request.
 */

import { InputCancelled, InputDeclined, InputExpired, misuse, RondoError } from '../errors.ts'
import { copyParsed } from '../lib/json.ts'
import { callable, defineOptions, flag, type Option, type OptionsOf, unchecked } from '../options.ts'
import { drawsForms } from '../protocol/common/apps.ts'
import { supports } from '../protocol/common/request.ts'
import { type InputResponse, LOG_LEVELS, type LogLevel, type Root } from '../protocol/wire.ts'
import type {
  ConfirmOptions,
  Context,
  EffectInfo,
  EffectOptions,
  HookOptions,
  Offer,
  Outcome,
  Question,
  Schema,
  StepInfo,
  Within,
} from '../tool/context.ts'
import { approve } from './approve.ts'
import { ask } from './ask.ts'
import { openHook } from './hook.ts'
import type { RetryPolicy, Undoable } from './input.ts'
import { setLabels } from './label.ts'
import { openOffer } from './offer.ts'
import {
  confirmQuestion,
  formQuestion,
  MANUAL,
  rootsQuestion,
  samplingQuestion,
  urlQuestion,
} from './question.ts'
import { attemptWithin, readRetry, readTimeout } from './retry.ts'
import {
  type Deferred,
  type Handed,
  type Mark,
  noteNews,
  operate,
  questionsBefore,
  type RunState,
  runMarked,
  throwIfNested,
  toHex,
} from './run-state.ts'
import type { Work } from './turn.ts'
import { keepsIntent, noteUndoable, undoingOf, undoSoFar } from './undo.ts'
import { EXPIRED, sleepFor, sleepUntil } from './wait.ts'
import { begunIn, branchOf, effectKey, work } from './work.ts'

const NONE: readonly string[] = []
const NO_META: Readonly<Record<string, unknown>> = Object.freeze({})

export function createContext(run: RunState): Context {
  return new RunContext(run)
}

/**
 * A class, because `signal` is created when it is first read, and a getter in an object literal would make the shape of
 * every `ctx` unique, which costs more than the rest of a run. Functions are bound: an author may destructure `ctx`.
 */
class RunContext implements Context {
  readonly #run: RunState

  constructor(run: RunState) {
    this.#run = run
    this.principal = run.principal
    this.client = run.client
    this.protocolVersion = run.protocolVersion
    this.round = run.round
    this.flow = run.flow
    this.relatedTaskIds = run.relatedTaskIds ?? NONE
    this.meta = run.meta ?? NO_META
  }

  readonly principal: Context['principal']
  readonly client: Context['client']
  readonly protocolVersion: string
  readonly round: number
  readonly flow: string
  readonly relatedTaskIds: readonly string[]
  readonly meta: Context['meta']

  readonly elicit: Context['elicit'] = (key, question) =>
    this.#question(key, async () => (await this.#elicit('elicit', key, question)) as Outcome<never>)
  readonly ask: Context['ask'] = (key, question) =>
    this.#question(key, async () => contentOf(key, await this.#elicit('ask', key, question)) as never)
  readonly confirm: Context['confirm'] = (key, message, options) =>
    this.#question(
      key,
      async () => {
        assertCall('confirm', key, message)
        CONFIRM_OPTIONS.assert(options, `The question "${key}"`)
        const outcome = (await ask(
          this.#run,
          key,
          confirmQuestion(message, options),
          options?.within,
        )) as Outcome<boolean>
        return outcome.action === 'accept' && outcome.content === true
      },
      'confirmation',
    )
  readonly visit: Context['visit'] = (key, page) =>
    this.#question(key, async () => {
      assertCall('visit', key, page)
      VISIT_OPTIONS.assert(page, `The question "${key}"`)
      contentOf(key, (await ask(this.#run, key, urlQuestion(page), page.within)) as Outcome<unknown>)
    })
  readonly sample: Context['sample'] = (key, params, options) =>
    this.#question(key, async () => {
      assertCall('sample', key, params)
      SAMPLE_OPTIONS.assert(options, `The question "${key}"`)
      const message = await ask(this.#run, key, samplingQuestion(params), options?.within)
      if (message === EXPIRED) throw new InputExpired(key)
      return message as never
    })
  readonly roots: Context['roots'] = (key = 'roots') =>
    this.#question(key, async () => (await ask(this.#run, key, rootsQuestion())) as readonly Root[])

  readonly step: Context['step'] = (key, fn, options) =>
    this.#operate('step', key, async () => {
      assertCall('step', key, fn)
      const { retry, timeout } = readWork('step', key, options)
      const act = (attempt: number): unknown => {
        this.#run.background.begins?.('step', key)
        return attemptWithin(this.#run, `step "${key}"`, timeout, (signal) =>
          fn(new WorkInfo(signal, attempt)),
        )
      }
      return (await work(this.#run, 'step', key, act, { retry })) as never
    })
  readonly effect: Context['effect'] = (key, fn, options) =>
    this.#operate('effect', key, async (effect) => {
      assertCall('effect', key, fn)
      const unread = questionsBefore(this.#run, effect)
      const { retry, timeout } = readWork('effect', key, options)
      const undoing = options?.undo && undoingOf(this.#run)
      // Computed now: an answer that arrives before the effect begins, or while it runs, must not change its key.
      const branch = this.#run.record.find(key)
        ? ''
        : (begunIn(this.#run, key)?.branch ?? branchOf(this.#run))
      const act = (attempt: number): unknown => {
        this.#run.background.begins?.('effect', key)
        const derived = effectKey(this.#run, key, branch)
        this.#run.trace?.keyed(key, derived)
        return attemptWithin(this.#run, `effect "${key}"`, timeout, (signal) =>
          fn(new EffectWorkInfo(signal, attempt, derived)),
        )
      }
      const { admit } = this.#run
      const admitted = (attempt: number): unknown => (admit ? admit().then(() => act(attempt)) : act(attempt))
      const fenced = (attempt: number): unknown =>
        options?.once ? onceOf(this.#run)(key, branch, () => admitted(attempt)) : admitted(attempt)
      const worked = work(this.#run, 'effect', key, fenced, {
        check: unread,
        retry,
        ...(undoing && keepsIntent(this.#run, undoing, key, branch, options?.once)),
      })
      if (options?.undo) {
        const settled = worked.catch(() => {})
        noteUndoable(this.#run, { key, undo: options.undo as Undoable['undo'], timeout, settled })
      }
      return (await worked) as never
    })
  readonly undo: Context['undo'] = () => operate(this.#run, 'ctx.undo()', () => undoSoFar(this.#run))
  readonly sleep: Context['sleep'] = (key, duration) =>
    this.#operate('sleep', key, async () => sleepFor(this.#run, key, duration))
  readonly sleepUntil: Context['sleepUntil'] = (key, date) =>
    this.#operate('sleep', key, async () => sleepUntil(this.#run, key, date))
  readonly hook = ((key: string, options?: HookOptions<Schema>) =>
    this.#operate('hook', key, () => openHook(this.#run, key, options))) as Context['hook']
  readonly approve: Context['approve'] = (key, options) =>
    operate(this.#run, `approval "${String(key)}"`, () => approve(this.#run, key, options), 'confirmation')
  readonly offer: Context['offer'] = (key, question) => {
    throwIfNested(this.#run, `offer "${String(key)}"`)
    assertCall('offer', key, question)
    QUESTION_OPTIONS.assert(question, `The offer "${key}"`)
    return openOffer(this.#run, key, question) as Offer<never>
  }
  readonly checkpoint: Context['checkpoint'] = () => this.#pass('checkpoint', { passing: true })
  readonly background: Context['background'] = () => {
    const { background } = this.#run
    if (!background.possible) background.stays?.()
    return this.#pass('background', background.possible ? { leaving: true } : { passing: true })
  }
  readonly status: Context['status'] = (message) => {
    const { background } = this.#run
    this.#run.trace?.status?.(message)
    if (isNews(this.#run)) background.setStatus(message)
    else background.statusWasSet?.()
  }
  readonly label: Context['label'] = (labels) => setLabels(this.#run, labels)

  readonly now: Context['now'] = () => this.#run.turn.now()
  readonly uuid: Context['uuid'] = (name) => drawUuid(this.#run, name)
  readonly random: Context['random'] = (name) => drawFraction(this.#run, name)

  readonly progress: Context['progress'] = (progress, total, message) =>
    sendProgress(this.#run, { progress, total, message })
  readonly log: Context['log'] = (level, data, logger) => {
    if (isNews(this.#run)) sendLog(this.#run, level, data, logger)
  }
  readonly defer: Context['defer'] = (fn) => {
    if (!this.#run.turn.ended()) this.#run.deferred.push(fn)
    else throwIfNested(this.#run, 'ctx.defer()')
  }
  readonly can: Context['can'] = (kind) => {
    const { capabilities } = this.#run.client
    return kind === 'app' ? drawsForms(capabilities) : supports(capabilities, kind)
  }

  get signal(): AbortSignal {
    return this.#run.signal()
  }

  /** Reading either counts as receiving client input: it enters the keys of effects, and what follows is news. */
  get inputResponses(): Context['inputResponses'] {
    const kept = manualAnswers(this.#run)
    const given = this.#run.inputResponses()
    const inputResponses = kept.length > 0 ? { ...given, ...Object.fromEntries(kept) } : given
    for (const [key, answer] of Object.entries(inputResponses ?? {})) this.#receive(`manual:${key}`, answer)
    return copyParsed(inputResponses)
  }
  get requestState(): string | undefined {
    const { requestState } = this.#run
    if (requestState !== undefined) this.#receive('state', requestState)
    return requestState
  }

  #receive(name: string, answer: unknown): void {
    noteNews(this.#run)
    if (!this.#run.received.has(name)) this.#run.received.set(name, { answer })
  }

  #operate<T>(kind: string, key: string, begin: (operation: Handed) => Promise<T>): Promise<T> {
    return operate(this.#run, `${kind} "${String(key)}"`, begin)
  }

  #question<T>(key: string, begin: () => Promise<T>, mark: Handed['question'] = 'question'): Promise<T> {
    return operate(this.#run, `question "${String(key)}"`, begin, mark)
  }

  #elicit(method: 'ask' | 'elicit', key: string, question: Question): Promise<Outcome<unknown>> {
    const { limits } = this.#run
    assertCall(method, key, question)
    QUESTION_OPTIONS.assert(question, `The question "${key}"`)
    return ask(this.#run, key, formQuestion(question, limits), question.within) as Promise<Outcome<unknown>>
  }

  /** A point where the run may stop; otherwise it continues at once. */
  #pass(name: string, how: Pick<Work, 'passing' | 'leaving'>): Promise<void> {
    const key = `ctx.${name}()`
    return operate(
      this.#run,
      key,
      () =>
        new Promise((resolve) => {
          this.#run.turn.enqueue({ key, ...how, begin: resolve })
        }),
    )
  }
}

/** The answers to the questions that the handler returned last, of this round and of those since that did not reach them. */
function manualAnswers({ record }: RunState): [string, InputResponse][] {
  return Array.from(record.early()).flatMap(([key, { question, answer }]) =>
    question.startsWith(MANUAL) ? [[key, answer as InputResponse]] : [],
  )
}

/** The calls as authors write them, by method: a name, and a second argument. */
const CALLS = {
  ask: { usage: "ctx.ask('name', { message, schema })", type: 'object' },
  elicit: { usage: "ctx.elicit('name', { message, schema })", type: 'object' },
  offer: { usage: "ctx.offer('name', { message, schema })", type: 'object' },
  confirm: { usage: "ctx.confirm('name', 'Really?')", type: 'string' },
  visit: { usage: "ctx.visit('name', { message, url })", type: 'object' },
  sample: { usage: "ctx.sample('name', { messages, maxTokens })", type: 'object' },
  step: { usage: "ctx.step('name', () => result)", type: 'function' },
  effect: { usage: "ctx.effect('name', ({ key }) => result)", type: 'function' },
} as const

function assertCall(method: keyof typeof CALLS, key: unknown, given: unknown): void {
  const { usage, type } = CALLS[method]
  if (typeof key === 'string' && typeof given === type && given !== null) return
  const wanted =
    typeof key === 'string' ? `a name and ${type === 'object' ? 'an' : 'a'} ${type}` : 'a name first'
  const got = typeof key === 'string' ? `"${key}" and ${describeType(given)}` : describeType(key)
  throw misuse(
    `ctx.${method} takes ${wanted}: ${usage}; got ${got}. The next round finds answers and results by their names.`,
  )
}

function describeType(value: unknown): string {
  if (value === undefined || value === null) return String(value)
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

// A misspelt name would be ignored, and with it the promise of `once` or of a time limit.
const within: Option<Within['within']> = unchecked()
const QUESTION_OPTIONS = defineOptions('ask', {
  message: unchecked(),
  schema: unchecked(),
  within,
  allowSecretLike: unchecked(),
  orArgument: unchecked(),
  ui: unchecked(),
} satisfies OptionsOf<Question>)
const VISIT_OPTIONS = defineOptions('visit', { message: unchecked(), url: unchecked(), within })
const CONFIRM_OPTIONS = defineOptions('confirm', {
  within,
  label: unchecked(),
} satisfies OptionsOf<ConfirmOptions>)
const SAMPLE_OPTIONS = defineOptions('sample', { within } satisfies OptionsOf<Within>)
type StepOptions = Pick<EffectOptions, 'retry' | 'timeout'>

const retry: Option<EffectOptions['retry']> = unchecked()
const timeout: Option<EffectOptions['timeout']> = unchecked()
const WORK_OPTIONS = {
  step: defineOptions('step', { retry, timeout } satisfies OptionsOf<StepOptions>),
  effect: defineOptions('effect', {
    once: flag(false),
    undo: callable<EffectOptions['undo']>(),
    retry,
    timeout,
  } satisfies OptionsOf<EffectOptions>),
}

function readWork(
  kind: 'step' | 'effect',
  key: string,
  options: StepOptions | undefined,
): { readonly retry?: RetryPolicy; readonly timeout?: number } {
  if (options === undefined) return {}
  WORK_OPTIONS[kind].assert(options, `The ${kind} "${key}"`)
  const of = `the ${kind} "${key}"`
  return { retry: readRetry(options.retry, of), timeout: readTimeout(options.timeout, of) }
}

/** The argument of a step's function. */
class WorkInfo implements StepInfo {
  readonly #signal: () => AbortSignal
  readonly attempt: number

  constructor(signal: () => AbortSignal, attempt: number) {
    this.#signal = signal
    this.attempt = attempt
  }

  get signal(): AbortSignal {
    return this.#signal()
  }
}

/** The argument of an effect's function, with its idempotency key. */
class EffectWorkInfo extends WorkInfo implements EffectInfo {
  readonly key: string

  constructor(signal: () => AbortSignal, attempt: number, key: string) {
    super(signal, attempt)
    this.key = key
  }
}

/** Returns the content of an accepted question; a decline, a cancel or the end of its time throws. */
function contentOf<T>(key: string, outcome: Outcome<T>): T {
  if (outcome.action === 'decline') throw new InputDeclined(key)
  if (outcome.action === 'cancel') throw new InputCancelled(key)
  if (outcome.action === 'expired') throw new InputExpired(key)
  return outcome.content
}

function onceOf({ once }: RunState): NonNullable<RunState['once']> {
  if (once) return once
  throw misuse('An effect with { once: true } needs a store. Pass one: createServer({ store }).')
}

/** False while the handler repeats what an earlier run did: what it reports was reported then. */
function isNews({ tally }: RunState): boolean {
  return tally.past === 0
}

function sendProgress(
  run: RunState,
  { progress, total, message }: { progress: number; total?: number; message?: string },
): void {
  const { line, progressToken } = run
  // The protocol requires progress to increase. This drops what a replayed handler reports a second time.
  if (progressToken === undefined || run.turn.ended() || !(progress > run.tally.progress)) return
  run.tally.progress = progress
  line.notify('notifications/progress', { progressToken, progress, total, message })
}

function sendLog({ line, logLevel }: RunState, level: LogLevel, data: unknown, logger?: string): void {
  if (logLevel === undefined || LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(logLevel)) return
  line.notify('notifications/message', { level, data, logger })
}

/** Returns a UUID of version 4. */
function drawUuid(run: RunState, name: string | undefined): string {
  const hex = toHex(draw(run, 'uuid', name))
  const variant = ((Number.parseInt(hex[16] ?? '0', 16) & 3) | 8).toString(16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** Returns a number in [0, 1). */
function drawFraction(run: RunState, name: string | undefined): number {
  const bytes = draw(run, 'random', name)
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  return (view.getUint32(0) * 2 ** 21 + (view.getUint32(4) >>> 11)) / 2 ** 53
}

/** Returns the bytes of a named value, or of the nth unnamed one of this run. */
function draw(run: RunState, kind: string, name: string | undefined): Uint8Array {
  const label = name === undefined ? `#${run.tally.drawn++}` : `:${name}`
  return run.platform.derive(run.journal.seed, kind + label)
}

// Clean-up at the end of a run: the functions that the handler passed to `ctx.defer`.

/** Runs the last registered first, each after the one before it has settled. The call waits for them, but not forever. */
export function runDeferred(run: RunState): Promise<void> {
  const { deferred } = run
  const { maxDeferMs } = run.limits
  const mark: Mark = { run, label: 'function passed to ctx.defer' }
  const report = (error: unknown): void => {
    try {
      run.onAsideError?.(error)
    } catch {
      // There is nobody left to report to.
    }
  }
  const one = async (fn: Deferred): Promise<void> => {
    try {
      await runMarked(mark, fn)
    } catch (error) {
      report(error)
    }
  }
  const all = async (): Promise<void> => {
    for (let fn = deferred.pop(); fn; fn = deferred.pop()) await one(fn)
  }
  return new Promise((resolve) => {
    const cancel = run.platform.after(maxDeferMs, () => {
      const detail = `A function passed to ctx.defer has not settled within ${maxDeferMs} ms (limits.maxDeferMs). The call continues without it.`
      report(new RondoError('LIMIT_DEFER', detail))
      for (const fn of deferred.splice(0).reverse()) void one(fn)
      resolve()
    })
    all().then(() => {
      cancel()
      resolve()
    })
  })
}
