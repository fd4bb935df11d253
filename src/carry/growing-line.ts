/**
 * One request over several streams: the client sees a single call, and every run of its handler tells its past again.
 * Progress that is not more than what was told before is left out.
 */

import type { Line } from '../protocol/call.ts'

export interface GrowingLine extends Line {
  /** The most that was told so far. */
  readonly told: number | undefined
}

export function growingLine(line: Line, before: number | undefined): GrowingLine {
  let told = before
  return {
    get told() {
      return told
    },
    get closed() {
      return line.closed
    },
    onClose: (listener) => line.onClose(listener),
    notify(method, params) {
      if (method === 'notifications/progress') {
        const progress = params.progress as number
        if (told !== undefined && !(progress > told)) return
        told = progress
      }
      line.notify(method, params)
    },
  }
}
