/** The process of one bench: `child.js NAME SETTINGS`. Reports its progress and its tables to the process that started it. */

import { BENCHES, type Report, type Settings } from './bench.ts'

export type FromBench =
  | { readonly kind: 'progress'; readonly text: string }
  | { readonly kind: 'done'; readonly report: Report }

const tell = (message: FromBench): void => void process.send?.(message)

const [name = '', settings = '{}'] = process.argv.slice(2)
const bench = await BENCHES[name]?.()
if (bench === undefined) throw new TypeError(`Unknown bench "${name}"`)
const given = JSON.parse(settings) as Omit<Settings, 'progress'>
const report = await bench.run({ ...given, progress: (text) => tell({ kind: 'progress', text }) })
// It ends only then: what a process that has ended sent may be lost.
process.once('disconnect', () => process.exit())
tell({ kind: 'done', report })
