import { describe, expect, it } from 'vitest'
import { createRondo } from '../mount/mount.ts'
import { createServer } from '../serve/server.ts'
import { createMemoryStore } from '../store/memory/store.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const store = createMemoryStore()
const start = (tasks = {}) => createServer({ name: 'times', version: '1', keys, log: 'off', store, tasks })
const declare = (terms: object) => start().tool('t', { task: 'auto', ...terms }, () => '')
const rondo = createRondo({ audience: 'times', keys, log: 'off', store })
const mount = (terms: object) => rondo.tool(() => ({ content: [] }), { task: 'auto', ...terms })

describe.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 367 * 86_400_000])('a time of %s', (ms) => {
  it('is refused when it is set, not in every call', () => {
    expect(() => declare({ taskTtlMs: ms })).toThrow(/^Tool "t": taskTtlMs must be a whole number/)
    expect(() => declare({ taskPollMs: ms })).toThrow(/^Tool "t": taskPollMs must be a whole number/)
    expect(() => start({ ttlMs: ms })).toThrow(/^createServer: tasks\.ttlMs must be a whole number/)
    expect(() => start({ pollMs: ms })).toThrow(/^createServer: tasks\.pollMs must be a whole number/)
    expect(() => mount({ taskTtlMs: ms })).toThrow(/^rondo\.tool: taskTtlMs must be a whole number/)
  })
})

it('a task accepts any other time', () => {
  declare({ taskTtlMs: 1, taskPollMs: 1 })
  declare({ taskTtlMs: 366 * 86_400_000 })
  start({ ttlMs: 60_000, pollMs: 50 })
  mount({ taskTtlMs: 1000 })
})
