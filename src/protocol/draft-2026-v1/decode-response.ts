/**
 * A response to our client in the draft: rounds as at 2026-07-28, tasks as at 2025-11-25, but for `tasks/result`, which
 * brings the questions of a task too (D3).
 */

import type { Call } from '../call.ts'
import { decodeWithTasks } from '../rev-2025-11-25/decode-task.ts'
import { type Decoded, decodeResponse as decodeLater } from '../rev-2026-07-28/decode-response.ts'

export function decodeResponse(call: Call, message: unknown): Decoded {
  return decodeWithTasks(call, message, decodeLater)
}
