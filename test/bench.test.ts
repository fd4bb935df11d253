/** The bench compares like with like, and looks at what it gets. How fast anything is, is not tested. */

import { describe, expect, it } from 'vitest'
import { drive } from '../bench/load/drive.ts'
import { LEGS, prepareLegs } from '../bench/load/legs.ts'
import { start as startBare } from '../bench/server/bare.ts'
import { start as startOfficial } from '../bench/server/official.ts'
import { start as startRondo } from '../bench/server/rondo.ts'
import { median, medianRatio } from '../bench/stat.ts'

const SERVERS = { rondo: startRondo, official: startOfficial, bare: startBare }

describe.each(Object.entries(SERVERS))('the bench of %s', (_name, start) => {
  it('gets the expected answer on every leg, and stops at one that belongs to another request', async () => {
    const { url, close } = await start(20)
    try {
      const legs = await prepareLegs(url)
      for (const leg of LEGS) {
        await drive(url, 40, legs[leg])
        const swapped = (index: number) => ({ ...legs[leg](index), check: legs[leg](index + 1).check })
        await expect(drive(url, 1, swapped)).rejects.toThrow(/^Not what was asked for/)
      }
    } finally {
      await close()
    }
  })
})

describe('the figures of the bench', () => {
  it('are medians', () => {
    expect(median([9, 1, 2])).toBe(2)
    expect(median([4, 1, 2, 9])).toBe(3)
    expect(medianRatio([2, 8, 30], [1, 2, 3])).toBe(4)
  })
})
