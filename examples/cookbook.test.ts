import { createBench, decline } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { cleaner, type Disk } from './cookbook-delete.ts'
import { watchdog } from './cookbook-escalate.ts'
import { exporter } from './cookbook-export.ts'
import { triage } from './cookbook-items.ts'
import { checkout } from './cookbook-pay.ts'
import { travelAgency } from './cookbook-wizard.ts'

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

describe('the recipe that pays once', () => {
  const open = () => {
    let price = 4_990
    const charges = new Map<string, number>()
    let failures = 0
    const bench = createBench((options) =>
      checkout(
        {
          price: async () => price,
          async charge({ cents, idempotencyKey }) {
            charges.set(idempotencyKey, cents)
            if (failures-- > 0) throw new Error('The response was lost')
            return `receipt ${charges.size}`
          },
        },
        options,
      ),
    )
    return {
      charges,
      bench,
      raise: () => {
        price += 1_000
      },
      fail: (times: number) => {
        failures = times
      },
    }
  }

  it('charges the price that was shown, once, though it rose and a reply was lost', async () => {
    const { charges, bench, raise } = open()
    const call = bench.tool('buy', { item: 'a lamp' })
    await call.next()
    raise()
    await call.loseReply({ buy: { confirm: true } })
    const done = await call.otherInstance().next({ buy: { confirm: true } })
    expect(done).toMatchObject({ text: 'Bought a lamp for 49.9 €: receipt 1.' })
    expect([...charges.values()]).toEqual([4_990])
  })

  it('tries again under the same key if the response of the shop is lost', async () => {
    const { charges, bench, fail } = open()
    fail(2)
    const done = await bench.tool('buy', { item: 'a lamp' }).run({ buy: { confirm: true } })
    expect(done).toMatchObject({ text: 'Bought a lamp for 49.9 €: receipt 1.' })
    expect(charges.size).toBe(1)
  })

  it('charges nothing after a no', async () => {
    const { charges, bench } = open()
    await bench.tool('buy', { item: 'a lamp' }).run({ buy: decline })
    expect(charges.size).toBe(0)
  })
})

describe('the recipe with a wizard', () => {
  const open = (hotels = ['Fjord', 'Grand']) => {
    const booked: object[] = []
    const bench = createBench((options) =>
      travelAgency({ hotels: async () => hotels, book: async (stay) => `no. ${booked.push(stay)}` }, options),
    )
    return { booked, bench }
  }

  it('asks what depends on earlier answers, and books what was shown last', async () => {
    const { booked, bench } = open()
    const call = bench.tool('book_trip')
    expect(await call.next()).toMatchObject({ questions: { trip: {} } })
    expect(await call.next({ trip: { city: 'Oslo', nights: 2 } })).toMatchObject({
      questions: { hotel: { params: { message: 'Which hotel in Oslo?' } } },
    })
    expect(await call.otherInstance().next({ hotel: { hotel: 'Grand' } })).toMatchObject({
      questions: { sure: { params: { message: 'Book Grand in Oslo for 2 nights?' } } },
    })
    expect(await call.next({ sure: { confirm: true } })).toMatchObject({
      text: 'Booked Grand for 2 nights: no. 1.',
    })
    expect(booked).toMatchObject([{ hotel: 'Grand', nights: 2 }])
  })

  it('books nothing after a no, and asks no more if there is no room', async () => {
    const { booked, bench } = open()
    const answers = { trip: { city: 'Oslo', nights: 2 }, hotel: { hotel: 'Fjord' }, sure: decline }
    expect(await bench.tool('book_trip').run(answers)).toMatchObject({ text: 'Nothing was booked.' })
    expect(booked).toEqual([])
    const full = await open([]).bench.tool('book_trip').run({ trip: answers.trip })
    expect(full).toMatchObject({ text: 'No hotel in Oslo has a free room.', result: { isError: true } })
  })
})

describe('the recipe with a long export', () => {
  it('copies each page under a key of its own, across failures', async () => {
    const copies: [page: number, key: string][] = []
    const bench = createBench((options) =>
      exporter(
        {
          pages: async () => 3,
          async copy(_year, page, { idempotencyKey }) {
            copies.push([page, idempotencyKey])
            if (page === 2 && copies.length === 2) throw new Error('The disk is busy')
          },
          publish: async (year) => `https://files.example/${year}.csv`,
        },
        options,
      ),
    )
    const task = bench.task('export_orders', { year: 2026 })
    const done = await task.run()
    expect(done).toMatchObject({ text: 'The orders of 2026 are at https://files.example/2026.csv.' })
    expect(copies.map(([page]) => page)).toEqual([1, 2, 2, 3])
    expect(copies[1]?.[1]).toBe(copies[2]?.[1])
    expect(new Set(copies.map(([, key]) => key)).size).toBe(3)
    expect(task.messages).toContain('page 3 of 3')
  })
})

describe('the recipe that escalates after a deadline', () => {
  const open = () => {
    const pages: { hook: string }[] = []
    const restarted: string[] = []
    const bench = createBench((options) =>
      watchdog(
        {
          page: async (message) => void pages.push(message),
          restart: async (service) => void restarted.push(service),
        },
        options,
      ),
    )
    const task = bench.task('recover', { service: 'mail' })
    return { bench, task, pages, restarted }
  }

  it('restarts when the user says yes, and pages nobody', async () => {
    const { task, pages, restarted } = open()
    await task.next()
    expect(await task.next({ user: { restart: true } })).toMatchObject({ text: 'Restarted mail.' })
    expect([pages.length, restarted]).toEqual([0, ['mail']])
  })

  it('pages the engineer on call after 15 minutes, who decides', async () => {
    const { bench, task, pages, restarted } = open()
    await task.next()
    await bench.advance('15 min')
    expect(await task.next()).toMatchObject({ kind: 'waiting' })
    expect(pages.length).toBe(1)
    const { hook = '' } = pages[0] ?? {}
    expect(await bench.server.deliver(hook, { restart: true })).toEqual({ kind: 'accepted' })
    expect(await task.next()).toMatchObject({ text: 'Restarted mail.' })
    expect(restarted).toEqual(['mail'])
  })

  it('does nothing if nobody decides, and nothing after a no', async () => {
    const silent = open()
    await silent.task.next()
    await silent.bench.advance('15 min')
    await silent.task.next()
    await silent.bench.advance('1 h')
    expect(await silent.task.next()).toMatchObject({ text: 'Nobody decided in time.' })
    const { task, pages, restarted } = open()
    await task.next()
    expect(await task.next({ user: { restart: false } })).toMatchObject({ text: 'Nothing was restarted.' })
    expect([...silent.restarted, ...restarted, ...pages]).toEqual([])
  })
})
