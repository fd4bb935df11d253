/** One process that works on a database: `child.js SUBJECT ADDRESS PROCESSES`. Runs the work it is told to, and reports how much it did. */

import { openBarePostgres } from './bare-postgres.ts'
import { openBareSqlite } from './bare-sqlite.ts'
import { openRondo } from './rondo.ts'
import type { Done, EngineAddress, Lone, Subject, SubjectName, Work } from './subject.ts'

export type ToChild =
  | { readonly kind: 'run'; readonly work: Work; readonly ms: number }
  | { readonly kind: 'lone'; readonly work: Lone; readonly count: number }
  | { readonly kind: 'settle' }

/** The message that a child sends when it is ready, and after each instruction. */
export interface FromChild {
  readonly kind: 'done'
  readonly done?: Done
  /** The time that each lone task took, in ms. */
  readonly times?: readonly number[]
}

function open(name: SubjectName, address: EngineAddress, processes: number): Promise<Subject> {
  if (name === 'rondo') return openRondo(address, processes)
  if (address.kind === 'restate') throw new TypeError('Nobody writes to Restate by hand')
  const grouped = name === 'grouped'
  return address.kind === 'sqlite'
    ? openBareSqlite(address.file, grouped)
    : openBarePostgres(address, grouped)
}

const [name = '', address = '', processes = '1'] = process.argv.slice(2)
const subject = await open(name as SubjectName, JSON.parse(address), Number(processes))
const say = (done: Omit<FromChild, 'kind'> = {}): void =>
  void process.send?.({ kind: 'done', ...done } satisfies FromChild)

process.on('message', async (message: ToChild) => {
  if (message.kind === 'run') return say({ done: await subject.run(message.work, message.ms) })
  if (message.kind === 'lone') return say({ times: await subject.lone?.(message.work, message.count) })
  await subject.settle()
  say()
})
process.on('disconnect', async () => {
  await subject.close()
  process.exit()
})
say()
