import { describe, expect, it } from 'vitest'
import { parsePending } from './stored-pending.ts'

const good = {
  version: 1,
  id: 'x',
  server: { target: 't' },
  protocolVersion: '2026-07-28',
  request: { method: 'resources/read', uri: 'a:b' },
  round: 1,
  state: 's',
  questions: { q: { method: 'roots/list' } },
  answers: { q: { roots: [] } },
  startedAt: 1,
  askedAt: 2,
  workMs: 3,
  idleRounds: 0,
}

const task = { taskId: 't', createdAt: 1, ttlMs: null, pollIntervalMs: 5, lookedAt: 2, answered: ['p'] }
const asTask = { ...good, request: { method: 'tools/call', name: 'a' }, task }

describe('reading a pending call', () => {
  it('C11 accepts JSON text and the value parsed from it', () => {
    expect(parsePending(good)).toEqual(good)
    expect(parsePending(asTask)).toEqual(asTask)
    expect(parsePending(JSON.stringify(good))).toEqual(good)
  })

  it.each([
    ['no JSON', '{'],
    ['a task that is none', { ...asTask, task: 'x' }],
    ['a task without an id', { ...asTask, task: { ...task, taskId: undefined } }],
    ['a task with odd keys', { ...asTask, task: { ...task, answered: [1] } }],
    ['a task of another method', { ...good, task }],
    ['a list', []],
    ['another format', { ...good, version: 2 }],
    ['no request', { ...good, request: undefined }],
    ['a request of another method', { ...good, request: { method: 'tools/list' } }],
    ['a tool without a name', { ...good, request: { method: 'tools/call' } }],
    ['arguments that are none', { ...good, request: { method: 'tools/call', name: 'a', arguments: [] } }],
    ['no server', { ...good, server: 'x' }],
    ['a state that is no string', { ...good, state: {} }],
    ['a question of no known kind', { ...good, questions: { q: { method: 'ping' } } }],
    ['an answer nobody asked for', { ...good, answers: { other: { roots: [] } } }],
    ['an answer of the wrong kind', { ...good, answers: { q: { action: 'accept' } } }],
    ['no answers', { ...good, answers: undefined }],
    ['a negative round', { ...good, round: -1 }],
    ['a time that is no number', { ...good, askedAt: 'now' }],
    ['no id', { ...good, id: 7 }],
    ['a key that changes prototypes', JSON.stringify(good).replaceAll('"q"', '"__proto__"')],
  ])('refuses %s', (_what, value) => {
    expect(() => parsePending(value)).toThrowError(/INPUT_PENDING/)
  })
})
