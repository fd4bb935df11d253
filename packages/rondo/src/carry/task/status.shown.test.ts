/** Questions of a task that are shown while its turn still runs, and what arrives meanwhile. */

import { describe, expect, it } from 'vitest'
import type { Arrival } from '../../replay/input.ts'
import type { OpenQuestion } from '../../replay/run-state.ts'
import { generateKey } from '../../seal/key-ring.ts'
import { createHost } from '../../serve/host.ts'
import type { AnsweredSlot, InputSlot, SlotChange } from '../../store/input-slots.ts'
import { createTaskId, type TaskTurn } from '../../store/task-engine.ts'
import type { TaskHost } from '../host.ts'
import { type Folded, markAnswer, openPiece, type Piece, sealPiece } from './journal.ts'
import { createShown } from './status.ts'

const tasks = { maxPieceBytes: 1_000_000 } as TaskHost
const asked = (key: string, digest = `digest of ${key}`) => ({ key, digest })

async function start(
  slots: readonly InputSlot[] = [],
  before: Record<string, { key: string; digest: string }> = {},
) {
  const host = createHost({ audience: 'a', keys: generateKey('k'), log: 'off' })
  await host.keys.ready()
  const task = { id: createTaskId(), owner: { tenant: 'a', principal: 'p' } } as TaskTurn['task']
  const seal = (piece: Piece, value: unknown) => sealPiece(host, task, piece, value)
  const open = (piece: Piece, sealed: string) => openPiece(host, tasks, task, piece, sealed)
  const done: unknown[] = []
  let present = slots
  let listener: (slot: AnsweredSlot) => boolean = () => false
  const turn = {
    task,
    slots: () => present,
    record: async (sealed: string) => void done.push(['record', open('record', sealed)]),
    publish: async (change: SlotChange) => {
      done.push(['publish', change])
      present = [...present, ...(change.open ?? []).map((slot) => ({ kind: 'open' as const, ...slot }))]
    },
    onAnswers: (given: typeof listener) => {
      listener = given
    },
  } as unknown as TaskTurn
  const shown = createShown(host, tasks, turn, { parked: { asked: before, reasks: {} }, parks: 3 } as Folded)
  const publish = (questions: Record<string, Partial<OpenQuestion>>) =>
    shown.publish(
      new Map(
        Object.entries(questions).map(([key, question]) => [
          key,
          { digest: `digest of ${key}`, request: { method: 'roots/list' }, ...question } as OpenQuestion,
        ]),
      ),
      { reasks: { r: { changes: 1 } } },
    )
  return { shown, publish, seal, open, done, answer: (slot: AnsweredSlot) => listener(slot) }
}

describe('a question that is shown while its turn runs', () => {
  it('G5 is recorded before the client can see it, under a key that the task has not used', async () => {
    const { publish, done, open } = await start([
      { kind: 'closed', key: 'q', role: 'offer' },
      { kind: 'open', key: 'r', role: 'hook', request: 'sealed' },
    ])
    await publish({ q: {}, 'q~2': { due: 9 }, r: { standing: true } })
    const opened = {
      asked: { 'q~2': asked('q'), 'q~2~2': asked('q~2'), r: asked('r') },
      reasks: { r: { changes: 1 } },
    }
    expect(done).toEqual([
      ['record', { opened }],
      [
        'publish',
        {
          open: [
            { key: 'q~2', request: expect.any(String) },
            { key: 'q~2~2', request: expect.any(String), until: 9 },
            { key: 'r', role: 'offer', request: expect.any(String) },
          ],
        },
      ],
    ])
    const [, [, { open: sent }]] = done as [unknown, [string, Required<SlotChange>]]
    for (const { key, request } of sent)
      expect(open(`input ${key}`, request)).toEqual({ method: 'roots/list' })
  })

  it('G5 is shown once, and again only if its words have changed', async () => {
    const { publish, done, shown } = await start([{ kind: 'open', key: 'q', request: 'sealed' }], {
      q: asked('q'),
    })
    await publish({ q: {} })
    expect(done).toEqual([])
    await publish({ q: { digest: 'other' } })
    expect(done).toHaveLength(2)
    await publish({ q: { digest: 'other' } })
    expect(done).toHaveLength(2)
    expect(shown.folded()).toEqual({
      parked: { asked: { q: asked('q'), 'q~2': asked('q', 'other') }, reasks: { r: { changes: 1 } } },
      parks: 3,
    })
  })

  it('G5 is withdrawn if it is an offer that is open', async () => {
    const { shown, done } = await start(
      [
        { kind: 'open', key: 'a', role: 'offer', request: 'sealed' },
        { kind: 'open', key: 'a~2', request: 'sealed' },
        { kind: 'closed', key: 'a~3', role: 'offer' },
        { kind: 'open', key: 'b', role: 'offer', request: 'sealed' },
        { kind: 'open', key: 'unknown', role: 'offer', request: 'sealed' },
      ],
      { a: asked('a'), 'a~2': asked('a'), 'a~3': asked('a'), b: asked('b') },
    )
    await shown.withdraw('c')
    expect(done).toEqual([])
    await shown.withdraw('a')
    expect(done).toEqual([
      ['publish', { close: [{ kind: 'open', key: 'a', role: 'offer', request: 'sealed' }] }],
    ])
  })
})

describe('what arrives while a turn runs', () => {
  const listen = async (takes = true) => {
    const arrived: Arrival[] = []
    const started = await start([], { q: asked('q') })
    started.shown.onArrival((arrival) => {
      arrived.push(arrival)
      return takes
    })
    return { ...started, arrived }
  }
  const answered = (key: string, answer: string, role?: 'hook'): AnsweredSlot => ({
    kind: 'answered',
    key,
    answer,
    ...(role && { role }),
  })

  it('G5 B14 is the answer to a question, without its span, or the event of a hook', async () => {
    for (const takes of [true, false]) {
      const { seal, answer, arrived } = await listen(takes)
      const accept = { action: 'accept', content: { value: 'x' } }
      expect(answer(answered('q', seal('answer q', markAnswer(accept, 'span'))))).toBe(takes)
      expect(answer(answered('paid', seal('event paid', { sum: 7 }), 'hook'))).toBe(takes)
      expect(arrived).toEqual([
        { question: 'q', digest: 'digest of q', answer: accept },
        { hook: 'paid', value: { sum: 7 } },
      ])
    }
  })

  it('G5 is left to the next turn if this one cannot know the question, or the client cannot be asked', async () => {
    const { seal, answer, arrived } = await listen()
    for (const key of ['unknown', 'toString'])
      expect(answer(answered(key, seal(`answer ${key}`, { action: 'accept' })))).toBe(false)
    expect(answer(answered('q', seal('answer q', 'elicitation/create')))).toBe(false)
    expect(arrived).toEqual([])
  })

  it('E9 is left to the next turn if this process lacks the key, and fails the turn if it was altered', async () => {
    const { answer, arrived, seal } = await listen()
    const other = createHost({ audience: 'a', keys: generateKey('other'), log: 'off' })
    await other.keys.ready()
    const of = { id: 'task', owner: { tenant: 'a', principal: 'p' } }
    expect(answer(answered('q', sealPiece(other, of, 'answer q', { action: 'accept' })))).toBe(false)
    expect(() => answer(answered('q', seal('answer other', { action: 'accept' })))).toThrow(
      expect.objectContaining({ code: 'SERVER_INTERNAL' }),
    )
    expect(arrived).toEqual([])
  })
})
