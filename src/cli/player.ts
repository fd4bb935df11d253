/**
 * Runs a file's server in a process of its own, one at a time: the old one has let go of the port before the new one takes
 * it. Changes that come while one is starting lead to one more start, not to many.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { type Io, printJson, tell } from './io.ts'
import type { ServeReport } from './serve-file.ts'

export interface PlayerOptions {
  readonly io: Io
  readonly path: string
  readonly host: string
  readonly port: number
  readonly json: boolean
  readonly command: (entrance: readonly string[]) => readonly string[]
  readonly env: Readonly<Record<string, string>>
}

export interface Player {
  /** True if the file could not be served. */
  start(): Promise<boolean>
  reload(): void
  stop(): Promise<void>
}

/** Longer than a server takes to drain. */
const STOP_MS = 12_000

export function createPlayer(options: PlayerOptions): Player {
  const { io, host } = options
  let { port } = options
  let child: ChildProcess | undefined
  let turn: Promise<unknown> = Promise.resolve()
  let waiting = false
  let stopped = false

  const end = async (): Promise<void> => {
    const old = child
    child = undefined
    if (old !== undefined) await stopChild(old)
  }
  const start = async (): Promise<boolean> => {
    if (stopped) return false
    const started = launch(options, ['http', host, String(port)])
    child = started
    const report = await firstReport(started)
    // Stopped meanwhile; whoever stops it waits for its end.
    if (child !== started) return false
    if (report.kind === 'failed') {
      // What the file began before it failed may go on: a port that it opened, a timer.
      await end()
      tell(io, `${options.path} cannot be served:\n${report.message}`)
      return true
    }
    started.once('exit', (code, signal) => {
      if (child !== started) return
      child = undefined
      tell(io, `The server of ${options.path} ended by itself (${signal ?? `exit code ${code}`}).`)
    })
    port = report.port
    if (options.json) printJson(io, { url: report.url, file: options.path })
    else tell(io, `Serving ${options.path} at ${report.url}`)
    return false
  }
  // Told twice to stop, this process ends at once, and takes the server with it.
  process.once('exit', () => child?.kill('SIGKILL'))
  const inTurn = <T>(run: () => Promise<T>): Promise<T> => {
    const next = turn.then(run)
    turn = next.catch(() => {})
    return next
  }
  return {
    start: () => inTurn(start),
    reload() {
      if (waiting || stopped) return
      waiting = true
      void inTurn(async () => {
        waiting = false
        if (stopped) return
        tell(io, 'A file changed.')
        await end()
        await start()
      })
    },
    async stop() {
      stopped = true
      // Not in turn: a start that does not come to an end is ended.
      await end()
      await turn
    },
  }
}

function launch({ command, env, io }: PlayerOptions, entrance: readonly string[]): ChildProcess {
  return spawn(process.execPath, [...command(entrance)], {
    cwd: io.cwd,
    env: { ...env },
    // Its log belongs to whoever plays; a group of its own, so that Ctrl-C reaches it through us alone.
    stdio: ['ignore', 2, 2, 'ipc'],
    detached: process.platform !== 'win32',
  })
}

async function firstReport(child: ChildProcess): Promise<ServeReport> {
  const settled = new AbortController()
  const { signal } = settled
  try {
    // Rejects where the process cannot be started.
    return await Promise.race([
      once(child, 'message', { signal }).then(([report]) => report as ServeReport),
      once(child, 'exit', { signal }).then(([code, by]): ServeReport => {
        return { kind: 'failed', message: `The process ended (${by ?? `exit code ${code}`})` }
      }),
    ])
  } catch (error) {
    return { kind: 'failed', message: (error as Error).message }
  } finally {
    settled.abort()
  }
}

async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  const kill = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
  child.kill('SIGTERM')
  await gone
  clearTimeout(kill)
}
