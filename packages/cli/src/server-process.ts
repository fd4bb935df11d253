/** A process that runs a file's server: `serve-file.ts` for `play` and `deliver`, `console/instance.ts` for the console. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

/** Longer than a server takes to drain. */
const STOP_MS = 12_000

/** `args` are those of `process.execPath`. */
export function startProcess(
  args: readonly string[],
  cwd: string,
  env: Readonly<Record<string, string>>,
): ChildProcess {
  return spawn(process.execPath, [...args], {
    cwd,
    env: { ...env },
    // Its log goes to our stderr. Its own process group, so that Ctrl-C reaches it only through us.
    stdio: ['ignore', 2, 2, 'ipc'],
    detached: process.platform !== 'win32',
  })
}

interface Failed {
  readonly kind: 'failed'
  readonly message: string
}

/** The first message of one of these kinds; or why none will come. */
export function firstReport<R extends { readonly kind: string }>(
  child: ChildProcess,
  kinds: readonly R['kind'][],
): Promise<R | Failed> {
  return new Promise((done) => {
    const fail = (message: string): void => done({ kind: 'failed', message })
    // The file may send messages too.
    child.on('message', (report: R | null) => {
      if (report !== null && kinds.includes(report.kind)) done(report)
    })
    child.once('exit', (code, signal) => fail(sayExit(signal ?? `exit code ${code}`)))
    child.once('error', (error) => fail(error.message))
  })
}

function sayExit(how: string): string {
  return `The process exited (${how}). If its error above is EADDRINUSE, the file listens itself: let it only export the server`
}

/** Lets the process finish its calls; one that takes too long is killed. */
export async function endProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return
  const gone = once(child, 'exit')
  const kill = setTimeout(() => child.kill('SIGKILL'), STOP_MS)
  child.kill('SIGTERM')
  await gone
  clearTimeout(kill)
}
