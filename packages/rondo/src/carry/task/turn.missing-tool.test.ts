import { expect, it } from 'vitest'
import { createHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import type { TaskTurn } from '../../store/task-engine.ts'
import type { TaskHost } from '../host.ts'
import { ownerOf, sealPiece, type TaskPlan } from './journal.ts'
import { createRunTurn } from './turn.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const MINUTE = 60_000

it('E9 a task whose tool is not here has a quarter of an hour from the last sign of an instance that has it', async () => {
  let time = 1_800_000_000_000
  const host = createHost({
    audience: 'tools',
    keys,
    log: 'off',
    store: createMemoryStore(),
    now: () => time,
  })
  await host.keys.ready()
  const run = createRunTurn(host, host.tasks as TaskHost, () => undefined)
  const of = { id: 'task-1', owner: ownerOf(host, undefined) }
  const call = {
    method: 'tools/call',
    target: 'gone',
    protocolVersion: '2026-07-28',
    capabilities: {},
  } as const
  const plan: TaskPlan = { flow: 'f', seed: 's', startedAt: time, round: 1, call: { ...call, args: {} } }
  const task = { ...of, head: sealPiece(host, of, 'head', plan) }
  const outcome = async (minutes: number, journal: readonly string[]) => {
    time += minutes * MINUTE
    return (await run({ task, journal, number: 1 } as unknown as TaskTurn)).kind
  }
  expect(await outcome(0, [])).toBe('release')
  expect(await outcome(14, [])).toBe('release')
  // Another instance went on with it.
  expect(await outcome(60, ['slept'])).toBe('release')
  expect(await outcome(14, ['slept'])).toBe('release')
  expect(await outcome(1, ['slept'])).toBe('fail')
})
