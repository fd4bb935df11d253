/**
 * Writes lines to stderr. A call that is alone is in the log before its client has the reply: the first line of a turn of the
 * event loop is written at once, unless there were several in the turn before. Under load, the lines of a turn share a write:
 * a system call for each would cost more than everything else about a line.
 */

import { quietly } from '../lib/quietly.ts'

/** Lines of this turn that are not written yet. */
let batch: { lines: string[]; inTurn: number; isBusy: boolean } | undefined
const MAX_BATCH = 64

/** From now on lines may share a write. For processes in which a timer of one request may write the lines of another. */
export function batchLogLines(): void {
  if (batch !== undefined) return
  batch = { lines: [], inTurn: 0, isBusy: false }
  process.once('exit', () => {
    writeBatch()
    // No turn follows: what others log while the process exits is written at once.
    batch = undefined
  })
}

/** An `urgent` line is written before this returns. */
export function writeToStandardError(line: string, urgent: boolean): void {
  if (batch === undefined) return writeAlone(line)
  batch.lines.push(line)
  batch.inTurn += 1
  const isFirst = batch.inTurn === 1
  if (urgent || (isFirst && !batch.isBusy) || batch.lines.length === MAX_BATCH) writeBatch()
  if (isFirst) setImmediate(endTurn)
}

const writeAlone = quietly((line: string) => console.error(line))

function endTurn(): void {
  if (batch === undefined) return
  batch.isBusy = batch.inTurn > 1
  batch.inTurn = 0
  writeBatch()
}

function writeBatch(): void {
  if (batch === undefined || batch.lines.length === 0) return
  const text = `${batch.lines.join('\n')}\n`
  batch.lines = []
  try {
    process.stderr.write(text, ignoreFailure)
  } catch {
    // Somebody replaced `process.stderr`, and it fails. There is no other place to report it.
  }
}

/** Without a listener, a broken pipe would end the process. Node calls this before it emits the error. */
function ignoreFailure(error: Error | null | undefined): void {
  const { stderr } = process
  if (error && stderr.listenerCount('error') === 0) stderr.once('error', () => {})
}
