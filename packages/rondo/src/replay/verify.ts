/**
 * Development mode runs every round a second time, against the journal of the first run, and lets nothing new run. A
 * deterministic handler performs the same operations in the same order and ends the same way; the first difference is an
 * error that names both operations.
 */

import { RondoError } from '../errors.ts'
import { canonicalJson } from '../lib/json.ts'
import type { Line } from '../protocol/call.ts'
import type { ReplayInput } from './input.ts'
import { replay } from './replay.ts'
import type { Ending, Operation, RunReport } from './run-state.ts'

const SILENT: Line = { notify: () => {}, closed: false, onClose: () => () => {} }

const NONE: ReadonlyMap<string, string> = new Map()

/** Real time between the two runs, so that a handler that reads the clock itself sees another time. */
const PAUSE_MS = 4

/**
 * Returns the first report, or a refusal if a second run of the same round differs from it. `advise` is called with the
 * questions whose schema was another object in the second run: the handler creates it.
 */
export async function verify(
  input: ReplayInput,
  first: RunReport,
  advise: (questions: readonly string[]) => void,
): Promise<RunReport> {
  if (first.ending.kind === 'refused') return first
  await new Promise<void>((resolve) => input.platform.after(PAUSE_MS, resolve))
  const second = await replay({
    ...input,
    journal: first.journal,
    incoming: { ...input.incoming, answers: undefined, asked: {}, events: undefined },
    onArrival: undefined,
    publish: undefined,
    withdraw: undefined,
    line: SILENT,
    background: { ...input.background, setStatus: () => {} },
    frozen: true,
    trace: input.trace?.reword && { called: () => {}, keyed: () => {}, reword: input.trace.reword },
    observed: undefined,
    onAsideError: undefined,
  })
  const difference = wasMoved(first.ending)
    ? compareOperations(first, { ...second, operations: second.operations.slice(0, first.operations.length) })
    : (compareOperations(first, second) ??
      compareLabels(first, second) ??
      compareEndings(first.ending, second.ending))
  if (difference === undefined) {
    const created = first.operations.filter(
      ({ schema }, i) => schema !== (second.operations[i] as Operation).schema,
    )
    if (created.length > 0) advise(created.map(({ key }) => key))
    return first
  }
  const detail =
    `The handler behaved differently when it ran again against the same journal: ${difference}. ` +
    'Use ctx.now, ctx.uuid and ctx.random for time and random values, and ctx.step for everything else from outside.'
  return { ...first, ending: { kind: 'refused', error: new RondoError('REPLAY_UNSTABLE', detail) } }
}

/** The instance released the call before it could finish: the second run, which is not stopped, may get further. */
function wasMoved(ending: Ending): boolean {
  return ending.kind === 'moved' && ending.reason !== 'effect'
}

function label(operation: Operation | undefined): string {
  return operation ? `${operation.kind} "${operation.key}"` : 'nothing'
}

function compareOperations(
  { operations: first }: RunReport,
  { operations: second }: RunReport,
): string | undefined {
  const at = [...first, ...second].findIndex((_, i) => textOf(first[i]) !== textOf(second[i]))
  if (at === -1) return undefined
  const [was, is] = [label(first[at]), label(second[at])]
  return `operation ${at + 1} was ${was} and then ${is}${was === is ? ' with other wording' : ''}`
}

function textOf(operation: Operation | undefined): string | undefined {
  return operation && JSON.stringify([operation.kind, operation.key, operation.question])
}

function compareLabels(
  { labels = NONE }: RunReport,
  { labels: again = NONE }: RunReport,
): string | undefined {
  const other = [...labels.keys(), ...again.keys()].find((name) => labels.get(name) !== again.get(name))
  return other === undefined ? undefined : `the label "${other}" had another value`
}

function compareEndings(first: Ending, second: Ending): string | undefined {
  if (first.kind !== second.kind) return `it ended with ${describe(first)} and then with ${describe(second)}`
  const [a, b] = [fingerprint(first), fingerprint(second)]
  return a === b ? undefined : `it ended with ${describe(first)} both times, but the content differs`
}

function describe(ending: Ending): string {
  switch (ending.kind) {
    case 'returned':
      return 'a result'
    case 'threw':
      return `an error (${String(ending.error)})`
    case 'asking':
      return `a question or an event (${[...ending.questions.keys(), ...ending.events].join(', ')})`
    case 'moved':
      return 'a move to another instance'
    case 'background':
      return 'a task'
    case 'sleeping':
      return 'a sleep'
    case 'refused':
      return `a refusal (${ending.error.message})`
  }
}

/** What two endings of one kind may differ in. The questions that are open were compared with the operations. */
function fingerprint(ending: Ending): string | undefined {
  switch (ending.kind) {
    case 'returned': {
      const text = JSON.stringify(ending.value)
      return text && canonicalJson(JSON.parse(text))
    }
    case 'threw':
      return String(ending.error)
    case 'asking':
      return [...ending.events].join()
    case 'sleeping':
      return String(ending.wakeAt)
  }
}
