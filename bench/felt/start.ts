/** Starts the server of `child.ts` in a process of its own. */

import { type ChildProcess, fork } from 'node:child_process'
import { messageOf } from '../message-of.ts'
import type { StoreAddress } from '../task/subject.ts'
import type { Listening, Used } from './child.ts'

export interface Running {
  readonly url: URL
  /** CPU time of the process so far, in µs. */
  used(): Promise<number>
  stop(): void
}

export async function start(file: string, address?: StoreAddress, env: object = {}): Promise<Running> {
  const child: ChildProcess = fork(file, [JSON.stringify(address ?? null)], {
    env: { ...process.env, ...env },
  })
  const { url } = await messageOf<Listening>(child, 'listening')
  return {
    url: new URL(url),
    async used() {
      const told = messageOf<Used>(child, 'used')
      child.send('cpu')
      return (await told).micros
    },
    stop: () => child.disconnect(),
  }
}
