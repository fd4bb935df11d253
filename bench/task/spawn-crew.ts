/** Starts the processes that work on one database together, and adds up what they do. */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { messageOf } from '../message-of.ts'
import type { FromChild, ToChild } from './child.ts'
import type { EngineAddress, Lone, SubjectName, Work } from './subject.ts'

export interface Crew {
  readonly name: SubjectName
  /** The rate at which all of them together did the work, per second. */
  rate(work: Work, ms: number): Promise<number>
  /** The time that the first of them took for each of `count` tasks, one after the other, in ms. */
  lone(work: Lone, count: number): Promise<readonly number[]>
  stop(): Promise<void>
}

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url))

/** `before` runs the program of another commit, which knows itself as `rondo`. */
export async function spawnCrew(
  name: SubjectName,
  address: EngineAddress,
  processes: number,
  before = '',
  node: string = process.execPath,
): Promise<Crew> {
  const program = name === 'before' ? [before, 'rondo'] : [CHILD, name]
  const children: ChildProcess[] = []
  // One after the other: the first creates the tables, and each adds its own rows.
  for (let i = 0; i < processes; i++) {
    const [path = '', ...subject] = program
    const child = fork(path, [...subject, JSON.stringify(address), String(processes)], {
      execPath: node,
    })
    await messageOf<FromChild>(child, 'done')
    children.push(child)
  }
  const tell = (message: ToChild): Promise<FromChild[]> =>
    Promise.all(
      children.map((child) => {
        const answer = messageOf<FromChild>(child, 'done')
        child.send(message)
        return answer
      }),
    )
  return {
    name,
    async rate(work, ms) {
      const answers = await tell({ kind: 'run', work, ms })
      await tell({ kind: 'settle' })
      return answers.reduce((sum, { done }) => sum + (done ? (1_000 * done.count) / done.ms : 0), 0)
    },
    async lone(work, count) {
      const [first] = children
      if (first === undefined) return []
      const answer = messageOf<FromChild>(first, 'done')
      first.send({ kind: 'lone', work, count } satisfies ToChild)
      return (await answer).times ?? []
    },
    async stop() {
      await Promise.all(
        children.map((child) => {
          if (!child.connected) return undefined
          const ended = once(child, 'exit')
          child.disconnect()
          return ended
        }),
      )
    },
  }
}
