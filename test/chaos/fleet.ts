/**
 * A few server processes behind a load balancer, and functions to kill and replace them.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'

export interface Fleet {
  /** The addresses that requests may go to; the list is updated in place. */
  readonly targets: URL[]
  /** Kills one instance with kill -9, and starts another in its place. */
  kill(index: number): Promise<void>
  /**
   * Like `kill`, for the next instance in turn that is up, without waiting for the one that takes its place. Does nothing if
   * fewer than two are up. Returns false then.
   */
  strike(): boolean
  /** Removes one instance from the list, lets it drain, and starts another in its place; `env` applies from now on. */
  replace(index: number, env?: Record<string, string>): Promise<void>
  readonly kills: number
  stop(): Promise<void>
}

const SCRIPT = new URL('./order-server.js', import.meta.url)

async function start(env: Record<string, string>): Promise<{ child: ChildProcess; url: URL }> {
  const child = fork(SCRIPT, {
    env: { ...process.env, ...env },
    execArgv: [],
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  const died = once(child, 'exit').then(() =>
    Promise.reject(new Error('The server ended before it listened')),
  )
  const [message] = (await Promise.race([once(child, 'message'), died])) as [{ port: number }]
  // From here on, tests expect it to end.
  died.catch(() => {})
  return { child, url: new URL(`http://127.0.0.1:${message.port}/mcp`) }
}

export async function startFleet(size: number, env: Record<string, string>): Promise<Fleet> {
  const started = await Promise.all(Array.from({ length: size }, () => start(env)))
  const children = started.map(({ child }) => child)
  const targets = started.map(({ url }) => url)
  const starting = new Map<number, Promise<void>>()
  let kills = 0
  let turn = 0

  let current = env
  const renew = async (index: number): Promise<void> => {
    const { child, url } = await start(current)
    children[index] = child
    targets[index] = url
  }

  const kill = async (index: number): Promise<void> => {
    kills += 1
    children[index]?.kill('SIGKILL')
    await renew(index)
  }

  return {
    targets,
    get kills() {
      return kills
    },
    kill,
    strike() {
      const up = children.flatMap((_child, index) => (starting.has(index) ? [] : [index]))
      const index = up.find((one) => one >= turn) ?? up[0]
      if (index === undefined || up.length < 2) return false
      turn = (index + 1) % size
      const renewal = kill(index).finally(() => starting.delete(index))
      starting.set(index, renewal)
      return true
    },
    async replace(index, overrides) {
      const old = children[index]
      current = { ...current, ...overrides }
      await renew(index)
      old?.kill('SIGTERM')
      if (old && old.exitCode === null) await once(old, 'exit')
    },
    async stop() {
      await Promise.all(starting.values())
      const alive = children.filter((child) => child.exitCode === null && child.signalCode === null)
      const gone = alive.map((child) => once(child, 'exit'))
      for (const child of alive) child.kill('SIGKILL')
      await Promise.all(gone)
    },
  }
}
