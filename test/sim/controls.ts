/**
 * Weakened copies of the real code. The simulator has to find each of them; a run of the unchanged code has to find nothing.
 *
 * The list was written before the simulator, from the promises, and not from what the simulator can do. `from` occurs exactly
 * once in its file.
 */

export interface Control {
  readonly name: string
  /** The promise that the weakened code breaks. */
  readonly breaks: string
  /** Relative to packages/rondo/src. */
  readonly file: string
  readonly from: string
  readonly to: string
}

export const CONTROLS: readonly Control[] = [
  {
    name: 'fence-off',
    breaks: 'A worker that lost its lease writes nothing.',
    file: 'store/memory/tasks.ts',
    from: 'return row?.epoch === epoch && row.worker !== undefined ? row : undefined',
    to: 'return row',
  },
  {
    name: 'digest-not-compared',
    breaks: 'An answer counts only for the question that was shown.',
    file: 'replay/ask.ts',
    from: 'const reworded = found !== undefined || (shown !== undefined && shown !== digest)',
    to: 'const reworded = false; if (kept) return question.take(kept.answer, run.roundAt)',
  },
  {
    name: 'recorded-answer-of-another-question',
    breaks: 'A recorded answer is not delivered to a question with another text.',
    file: 'replay/ask.ts',
    from: 'if (found?.entry.question === digest) return',
    to: 'if (found) return',
  },
  {
    name: 'later-answer-wins',
    breaks: 'A recorded answer wins over anything that comes later.',
    file: 'replay/ask.ts',
    from: 'if (found?.entry.question === digest) return',
    to: 'if (found?.entry.question === digest && !Object.hasOwn(run.incoming.answers ?? {}, key)) return',
  },
  {
    name: 'key-without-answers',
    breaks: 'An effect that runs on other answers has another key.',
    file: 'replay/work.ts',
    from: "if (received.size === 0 && rerun === undefined) return ''",
    to: "if (received.size >= 0) return ''",
  },
  {
    name: 'key-of-this-process',
    breaks: 'An effect that runs again has the same key.',
    file: 'replay/work.ts',
    from: 'const label = branch === ',
    to: 'name += Math.random(); const label = branch === ',
  },
  {
    name: 'effect-before-anchor',
    breaks: 'No effect runs before the client holds the id of the flow (R6).',
    file: 'replay/turn.ts',
    from: 'else if ((work.strict && !anchored) || (work.linear && !linear)) held.push(work)',
    to: 'else if ((work.strict && !anchored && held.length > 0) || (work.linear && !linear)) held.push(work)',
  },
  {
    name: 'divergence-allowed',
    breaks: 'No new effect runs while a recorded one was not reached (R5).',
    file: 'replay/work.ts',
    from: 'if (unreached === undefined) return undefined',
    to: 'if (unreached !== key) return undefined',
  },
  {
    name: 'results-out-of-order',
    breaks: 'Results reach the handler in the order of the journal.',
    file: 'replay/turn.ts',
    from: 'for (let i = 1; i < due.length; i++) if (at(due, i).index < at(due, first).index) first = i',
    to: 'first = due.length - 1',
  },
  {
    name: 'suspended-while-work-runs',
    breaks: 'A run is suspended only when no work is running, so that all work is recorded.',
    file: 'replay/turn.ts',
    from: 'if (running > 0) return publish()',
    to: 'if (running > 0 && questions.size === 0) return publish()',
  },
  {
    name: 'checkpoint-skipped',
    breaks: 'The handler of a task sees a result only after the result was written.',
    file: 'carry/task/turn.ts',
    from: "await turn.record(sealPiece(host, turn.task, 'record', { entry } satisfies TaskRecord))",
    to: "void turn.record(sealPiece(host, turn.task, 'record', { entry } satisfies TaskRecord)).catch(() => {})",
  },
  {
    name: 'reply-before-commit',
    breaks: 'An answer that was acknowledged is not lost.',
    file: 'store/memory/tasks.ts',
    from: 'Object.assign(row, { slots, status: waitingStatus(slots), known: row.known || running || wakes })',
    to: 'setTimeout(() => Object.assign(row, { slots, status: waitingStatus(slots), known: row.known || running || wakes }))',
  },
  {
    name: 'answers-lost-when-parking',
    breaks: 'An answer that arrives while the task parks is not lost.',
    file: 'store/input-slots.ts',
    from: 'if (known === undefined || slot.kind === ',
    to: 'if (known !== undefined || slot.kind === ',
  },
  {
    name: 'wake-lost',
    breaks: 'A parked task with new answers becomes due.',
    file: 'store/memory/tasks.ts',
    from: 'table.rest(row, news ? table.now() : wakeAt)',
    to: 'table.rest(row, wakeAt)',
  },
  {
    name: 'epoch-ignored',
    breaks: 'A state that was handed out before the store was restored uses nothing of it.',
    file: 'store/memory/store.ts',
    from: "if (slot.epoch !== epoch) return { kind: 'refused', reason: 'epoch' }",
    to: '',
  },
  {
    name: 'single-use-by-round-only',
    breaks: 'A state that was used with other answers is refused.',
    file: 'store/memory/store.ts',
    from: "if (row.digest !== slot.digest) return { kind: 'refused', reason: 'used' }",
    to: '',
  },
  {
    name: 'hold-never-taken',
    breaks: 'Of two equal requests at the same time, one runs the work.',
    file: 'store/memory/store.ts',
    from: 'if (row.claimant !== claimant && row.holdUntil > now())',
    to: 'if (row.claimant !== claimant && row.holdUntil > now() + holdMs)',
  },
  {
    name: 'settled-twice',
    breaks: 'The reply to a request that is repeated is the first one.',
    file: 'store/memory/store.ts',
    from: 'row.response ??= response',
    to: 'row.response = response',
  },
  {
    name: 'request-not-bound',
    breaks: 'A state is accepted only with the arguments it was sealed for.',
    file: 'seal/state.ts',
    from: "if (claims.request !== expected.request) return 'request'",
    to: '',
  },
  {
    name: 'principal-not-bound',
    breaks: 'A state is of no use to another caller.',
    file: 'seal/state.ts',
    from: "if (claims.principal !== expected.principal) return 'principal'",
    to: '',
  },
  {
    name: 'undo-intent-not-written',
    breaks: 'The intent to undo is durable before the effect begins.',
    file: 'replay/undo.ts',
    from: "await undoing.keep(journal, 'intent')",
    to: '',
  },
  {
    name: 'undo-under-another-key',
    breaks: 'An undo that runs again has the same key.',
    file: 'replay/undo.ts',
    from: 'const ownKey = toHex(run.platform.derive(',
    to: 'const ownKey = toHex(run.platform.derive(Math.random() + ',
  },
  {
    name: 'undo-in-order',
    breaks: 'The last effect is undone first.',
    file: 'replay/undo.ts',
    from: 'of [...run.record.begun()].reverse()',
    to: 'of [...run.record.begun()]',
  },
  {
    name: 'undo-without-alarm',
    breaks: 'A call whose client is gone is undone when it expires.',
    file: 'carry/undo.ts',
    from: 'if (!current) await createAlarm(round, tasks, guard, lineage)',
    to: '',
  },
  {
    name: 'attempts-forgotten',
    breaks: 'A failed attempt counts in every later run.',
    file: 'replay/retry.ts',
    from: 'continueDuring(run, run.persistAttempt?.(key, attempt, due))',
    to: '',
  },
  {
    name: 'approved-by-the-caller',
    breaks: 'Nobody approves a call of their own.',
    file: '../../approvals/src/people.ts',
    from: 'return fold(caller.subject) === fold(identity.subject)',
    to: 'return false',
  },
  {
    name: 'quorum-ignored',
    breaks: 'A request is approved by as many people as it needs.',
    file: '../../approvals/src/request.ts',
    from: 'return approvals >= request.quorum ?',
    to: 'return approvals >= 1 ?',
  },
  {
    name: 'permit-not-checked',
    breaks: 'A call that has lost its permit begins no effect.',
    file: 'carry/permit.ts',
    from: 'if (!held || isLate) throw lostPermit(host)',
    to: '',
  },
  {
    name: 'permit-read-late',
    breaks: 'A call that froze while it was told that it holds its permit begins no effect.',
    file: 'carry/permit.ts',
    from: 'if (!held || isLate) throw lostPermit(host)',
    to: 'if (!held) throw lostPermit(host)',
  },
  {
    name: 'permits-for-all',
    breaks: 'No more calls run at once than the limit allows.',
    file: 'store/permits.ts',
    from: 'if (!isFull) return',
    to: 'if (!isFull || limit > 0) return',
  },
]
