import { createBench, decline } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { cleaner, type Disk } from './cookbook-delete.ts'
import { triage } from './cookbook-items.ts'

describe('the recipe that approves a deletion', () => {
  const open = (files = 3) => {
    const removed = new Map<string, string>()
    const disk: Disk = {
      count: async () => files++,
      remove: async (folder, { idempotencyKey }) => void removed.set(idempotencyKey, folder),
    }
    return { removed, bench: createBench((options) => cleaner(disk, options)) }
  }

  it('deletes once after a yes, though the reply was lost', async () => {
    const { removed, bench } = open()
    const call = bench.tool('delete_folder', { folder: 'logs' })
    await call.next()
    await call.loseReply({ delete: { confirm: true } })
    const done = await call.otherInstance().next({ delete: { confirm: true } })
    expect(done).toMatchObject({ kind: 'complete', text: 'Deleted logs with 3 files.' })
    expect([...removed.values()]).toEqual(['logs'])
  })

  it.each([[decline], [{ confirm: false }]])('deletes nothing after %j', async (answer) => {
    const { removed, bench } = open()
    const done = await bench.tool('delete_folder', { folder: 'logs' }).run({ delete: answer })
    expect(done).toMatchObject({ text: 'Nothing was deleted.' })
    expect(removed.size).toBe(0)
  })
})

describe('the recipe with one question per item', () => {
  it('asks for all items in one round and saves those that were answered', async () => {
    const saved = new Map<number, string>()
    const bench = createBench((options) =>
      triage(
        {
          unlabelled: async () => [
            { id: 1, title: 'Crash' },
            { id: 2, title: 'Dark mode' },
          ],
          label: async (id, label) => void saved.set(id, label),
        },
        options,
      ),
    )
    const call = bench.tool('label_issues', {})
    expect(await call.next()).toMatchObject({
      questions: { 'label-1': { params: { message: 'Label for #1, "Crash"?' } }, 'label-2': {} },
    })
    const done = await call.next({ 'label-1': { label: 'bug' }, 'label-2': decline })
    expect(done).toMatchObject({ kind: 'complete', text: 'Labelled 1 of 2 issues.' })
    expect([...saved]).toEqual([[1, 'bug']])
  })
})
