import { describe, expect, it } from 'vitest'
import { generateKey, parseKeys } from '../../seal/key-ring.ts'
import { tagsOf } from '../../seal/tag.ts'
import { createTaskId, type TaskTurn } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { openPiece } from './journal.ts'
import { labelsOf, labelTags, type StoredLabels } from './label.ts'

const tasks = { maxPieceBytes: 100_000 } as TaskHost
const host = {
  audience: 'shop',
  keys: { ring: parseKeys(generateKey()) },
  log: () => {},
  tasks,
} as unknown as FlowHost
const row = { id: createTaskId(), owner: { tenant: 'shop', principal: 'ada' } } as TaskTurn['task']

interface Written {
  readonly sealed: string
  readonly tags: readonly string[]
}

/** One turn that sets labels, on a task that has those that were written last. */
async function turnWith(labels: Record<string, string>, before?: Written): Promise<Written | undefined> {
  let written: Written | undefined
  const turn = {
    task: { ...row, labels: before?.sealed },
    label: async (sealed: string, tags: readonly string[]) => {
      written = { sealed, tags }
    },
  }
  await labelsOf(host, tasks, turn).keep(new Map(Object.entries(labels)))
  return written
}

const read = ({ sealed }: Written): StoredLabels => openPiece(host, tasks, row, 'labels', sealed)

describe('the labels of a task', () => {
  it('M5 are written with one tag each, and not again if the task has them', async () => {
    const first = await turnWith({ order: '4711', customer: 'ada' })
    expect(first?.tags).toEqual(
      [
        ['order', '4711'],
        ['customer', 'ada'],
      ].map(([name = '', value = '']) => labelTags(host.keys.ring, name, value)[0]),
    )
    expect(await turnWith({ customer: 'ada', order: '4711' }, first)).toBeUndefined()
    expect(await turnWith({ order: '4711' }, first)).toBeUndefined()
    expect(await turnWith({ order: '4711', customer: 'bob' }, first)).toBeDefined()
    const second = await turnWith({ order: '4712' }, first)
    expect(second?.tags).toHaveLength(2)
    expect(second && new Map(read(second))).toEqual(
      new Map([
        ['customer', 'ada'],
        ['order', '4712'],
      ]),
    )
  })

  it('M5 of a handler that names them differently in every turn stay within their number, the newest of them', async () => {
    let last: Written | undefined
    for (let i = 0; i < 20; i++) last = await turnWith({ [`turn ${i}`]: 'x' }, last)
    expect(last && read(last).map(([name]) => name)).toEqual(
      Array.from({ length: 8 }, (_, i) => `turn ${i + 12}`),
    )
    expect(last?.tags).toHaveLength(8)
  })

  it('M5 are found if another release of the service wrote them', () => {
    const written = tagsOf(host.keys.ring, 'label', JSON.stringify(['order', '4711']))
    expect(labelTags(host.keys.ring, 'order', '4711')).toEqual(written)
  })

  it('M5 are dropped where the store cannot keep them', async () => {
    await expect(
      labelsOf(host, tasks, { task: row }).keep(new Map([['order', '4711']])),
    ).resolves.toBeUndefined()
  })
})
