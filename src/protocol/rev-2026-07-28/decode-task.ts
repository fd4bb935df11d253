/**
 * A task as a server shows it. What was just created is a head only; what is looked at later has the open questions, the
 * result or the error that its status promises. Gives undefined where a field is missing or has another type.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { TaskState } from '../task.ts'
import { decodeQuestions } from './decode-question.ts'
import { decodeFlowResult } from './decode-result.ts'

type Fields = Readonly<Record<string, unknown>>

const STATUSES: readonly TaskState['status'][] = [
  'working',
  'input_required',
  'completed',
  'failed',
  'cancelled',
]

export function decodeTask(fields: Fields, part: 'head' | 'whole'): TaskState | undefined {
  const { taskId, statusMessage, ttlMs, pollIntervalMs } = fields
  const status = STATUSES.find((one) => one === fields.status)
  const createdAt = timeOf(fields.createdAt)
  const lastUpdatedAt = timeOf(fields.lastUpdatedAt)
  if (typeof taskId !== 'string' || taskId === '' || status === undefined) return undefined
  if (createdAt === undefined || lastUpdatedAt === undefined) return undefined
  const content = part === 'head' ? {} : decodeContent(status, fields)
  return (
    content && {
      taskId,
      status,
      ...(typeof statusMessage === 'string' && { statusMessage }),
      createdAt,
      lastUpdatedAt,
      ttlMs: typeof ttlMs === 'number' && ttlMs >= 0 ? ttlMs : null,
      ...(typeof pollIntervalMs === 'number' && pollIntervalMs >= 0 && { pollIntervalMs }),
      ...content,
    }
  )
}

function decodeContent(
  status: TaskState['status'],
  { inputRequests, result, error }: Fields,
): Pick<TaskState, 'inputRequests' | 'result' | 'error'> | undefined {
  switch (status) {
    case 'input_required': {
      const questions = decodeQuestions(inputRequests)
      return questions && { inputRequests: questions }
    }
    case 'completed': {
      if (!isRecord(result) || (result.resultType ?? 'complete') !== 'complete') return undefined
      const checked = decodeFlowResult('tools/call', result)
      return checked && { result: checked }
    }
    case 'failed': {
      if (!isRecord(error) || !Number.isInteger(error.code) || typeof error.message !== 'string') {
        return undefined
      }
      const { code, message, data } = error
      return { error: { code: Number(code), message, ...(data !== undefined && { data }) } }
    }
    default:
      return {}
  }
}

/** Ms since the epoch. */
function timeOf(text: unknown): number | undefined {
  const time = typeof text === 'string' ? Date.parse(text) : Number.NaN
  return Number.isFinite(time) ? time : undefined
}
