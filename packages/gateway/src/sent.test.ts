import type { RecordStore, RecordWrite } from 'rondo/store'
import { describe, expect, it } from 'vitest'
import { createSentRounds, type Sealer } from './sent.ts'

/** Records in memory, with the promises of the port that matter here. */
function createRecords(): RecordStore & { readonly writes: RecordWrite[] } {
  const rows = new Map<string, { sealed: string; version: number }>()
  const writes: RecordWrite[] = []
  return {
    writes,
    async get(id) {
      const row = rows.get(id)
      return row && { ...row, quietMs: 0 }
    },
    async put(record) {
      writes.push(record)
      const version = rows.get(record.id)?.version ?? 0
      if (version === record.version + 1 && rows.get(record.id)?.sealed === record.sealed) return 'stored'
      if (version !== record.version) return 'conflict'
      rows.set(record.id, { sealed: record.sealed, version: version + 1 })
      return 'stored'
    },
    async touch() {},
    async remove(id) {
      rows.delete(id)
    },
  }
}

const sealer: Sealer = {
  seal: async (purpose, data) => Buffer.from(`${purpose}:${data}`).toString('base64url'),
  async open(purpose, sealed) {
    const text = Buffer.from(sealed, 'base64url').toString()
    return text.startsWith(`${purpose}:`)
      ? new TextEncoder().encode(text.slice(purpose.length + 1))
      : undefined
  },
}

const ROUND = { flow: 'f', round: '2', upstream: 'crm', owner: 'ada' }

describe('rounds that were sent', () => {
  it('K3 are not sent again by another instance, which gets the outcome', async () => {
    const records = createRecords()
    let sent = 0
    const send = async () => {
      sent += 1
      return { kind: 'result', result: { n: 1 } }
    }
    const first = await createSentRounds(records, sealer).once(ROUND, send)
    expect(await createSentRounds(records, sealer).once(ROUND, send)).toEqual(first)
    expect(sent).toBe(1)
    await createSentRounds(records, sealer).once({ ...ROUND, round: '3' }, send)
    expect(sent).toBe(2)
  })

  it('K3 are reported as lost if the process ended before it had the outcome', async () => {
    const records = createRecords()
    const never = createSentRounds(records, sealer).once(ROUND, () => new Promise(() => {}))
    never.catch(() => {})
    await expect.poll(() => records.writes.length).toBe(1)
    let sent = 0
    const again = createSentRounds(records, sealer).once(ROUND, async () => {
      sent += 1
    })
    await expect(again).rejects.toThrow(/"crm" has ended.*may have had effects.*not sent again/)
    expect(sent).toBe(0)
  })

  it('K3 are not taken for another round whose outcome was put in their place', async () => {
    const records = createRecords()
    await createSentRounds(records, sealer).once({ ...ROUND, round: '1' }, async () => 'of another round')
    await createSentRounds(records, sealer).once(ROUND, async () => 'own')
    const swapped: RecordStore = { ...records, get: (id) => records.get(id.replace(/2$/, '1')) }
    const again = createSentRounds(swapped, sealer).once(ROUND, async () => 'sent again')
    await expect(again).rejects.toThrow(/not sent again/)
  })

  it('are not sent if the store fails before, and are returned if it fails after', async () => {
    const records = createRecords()
    let sent = 0
    const send = async () => {
      sent += 1
      return 'done'
    }
    const broken: RecordStore = { ...records, put: () => Promise.reject(new Error('away')) }
    await expect(createSentRounds(broken, sealer).once(ROUND, send)).rejects.toThrow('away')
    expect(sent).toBe(0)
    let puts = 0
    const later: RecordStore = {
      ...records,
      put(record) {
        puts += 1
        return puts === 1 ? records.put(record) : Promise.reject(new Error('away'))
      },
    }
    expect(await createSentRounds(later, sealer).once(ROUND, send)).toBe('done')
  })

  it('fail without sending if the caller has no room left', async () => {
    const full: RecordStore = { ...createRecords(), put: async () => 'limit' }
    await expect(createSentRounds(full, sealer).once(ROUND, async () => 'x')).rejects.toThrow(
      'nothing was sent to "crm"',
    )
  })
})
