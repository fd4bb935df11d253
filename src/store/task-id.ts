import { randomBytes } from 'node:crypto'

/** An id that nobody can guess: 128 random bits. */
export function createTaskId(): string {
  return randomBytes(16).toString('base64url')
}

/** True for what could be the id of a task. Anything else is unknown without asking the database. */
export function isTaskId(id: string): boolean {
  return /^[A-Za-z0-9_-]{22,64}$/.test(id)
}
