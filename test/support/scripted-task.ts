/** Tasks as a scripted server shows them. */

import { said } from './scripted-server.ts'

const AT = '2026-07-28T00:00:00.000Z'

/** A task in some status, with whatever belongs to it. */
export const task = (status: string, more: object = {}) => ({
  resultType: 'complete',
  taskId: 'task-1',
  status,
  createdAt: AT,
  lastUpdatedAt: AT,
  ttlMs: 60_000,
  pollIntervalMs: 1_000,
  ...more,
})

export const created = (more: object = {}) => ({ ...task('working'), resultType: 'task', ...more })
export const asks = (inputRequests: object) => task('input_required', { inputRequests })
export const completed = (text: string) => task('completed', { result: said(text) })
export const ACK = { resultType: 'complete' }
