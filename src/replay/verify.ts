/**
 * Development mode: the round is run a second time against the journal the first run left, with nothing new allowed to
 * run. A handler that replays does the same operations in the same order and ends the same way; the first difference
 * is an error that names both operations.
 */

import { RondoError } from '../errors.ts'
import { canonicalJson } from '../lib/canonical-json.ts'
import type { Line } from '../protocol/call.ts'
import { type ReplayInput, replay } from './replay.ts'
import type { Ending, Operation, RunReport } from './run-state.ts'

const SILENT: Line = { notify: () => {}, closed: false, onClose: () => () => {} }

/** Real time that passes before the second run, so that a clock which the handler reads by itself is seen to move. */
const PASSING_MS = 4

/** The first report, or a refusal if a second run of the same round differs from it. */
export async function verify(input: ReplayInput, first: RunReport): Promise<RunReport> {
  if (first.ending.kind === 'refused') return first
  await new Promise<void>((resolve) => input.platform.after(PASSING_MS, resolve))
  const second = await replay({
    ...input,
    journal: first.journal,
    incoming: { ...input.incoming, answers: undefined, asked: {} },
    scene: { ...input.scene, line: SILENT, background: { ...input.scene.background, tell: () => {} } },
    frozen: true,
    onDeferError: undefined,
  })
  const difference = wasMoved(first.ending)
    ? compareOperations(first, { ...second, operations: second.operations.slice(0, first.operations.length) })
    : (compareOperations(first, second) ?? compareEndings(first.ending, second.ending))
  if (difference === undefined) return first
  const detail =
    `Run twice against the same journal, the handler did not do the same: ${difference}. ` +
    'Take clocks, random values, and reads of the outside world into ctx.step, ctx.now, ctx.uuid or ctx.random.'
  return { ...first, ending: { kind: 'refused', error: new RondoError('REPLAY_UNSTABLE', detail) } }
}

/** Let go in the middle by the operator's wish: the second run, which nobody stops, may come further. */
function wasMoved(ending: Ending): boolean {
  return ending.kind === 'moved' && ending.reason !== 'effect'
}

function label(operation: Operation | undefined): string {
  return operation ? `${operation.kind} "${operation.key}"` : 'nothing'
}

function compareOperations(first: RunReport, second: RunReport): string | undefined {
  const length = Math.max(first.operations.length, second.operations.length)
  for (let i = 0; i < length; i++) {
    const [a, b] = [first.operations[i], second.operations[i]]
    if (a?.key === b?.key && a?.kind === b?.kind && a?.question === b?.question) continue
    const reworded = a?.key === b?.key && a?.kind === b?.kind ? ' with another wording' : ''
    return `operation ${i + 1} was ${label(a)} and then ${label(b)}${reworded}`
  }
  return undefined
}

function compareEndings(first: Ending, second: Ending): string | undefined {
  if (first.kind !== second.kind) return `it ended as ${describe(first)} and then as ${describe(second)}`
  const [a, b] = [fingerprint(first), fingerprint(second)]
  return a === b ? undefined : `it ended as ${describe(first)} both times, but with different content`
}

function describe(ending: Ending): string {
  switch (ending.kind) {
    case 'returned':
      return 'a result'
    case 'threw':
      return `an error (${String(ending.error)})`
    case 'asking':
      return `a question (${[...ending.questions.keys()].join(', ')})`
    case 'moved':
      return 'a hand-over'
    case 'background':
      return 'a task'
    case 'refused':
      return ending.error.message
  }
}

function fingerprint(ending: Ending): string {
  switch (ending.kind) {
    case 'returned':
      return ending.value === undefined
        ? ''
        : canonicalJson(JSON.parse(JSON.stringify(ending.value) ?? 'null'))
    case 'threw':
      return String(ending.error)
    case 'asking':
      return canonicalJson([...ending.questions].map(([key, { digest }]) => [key, digest]))
    case 'moved':
    case 'background':
    case 'refused':
      return ''
  }
}
