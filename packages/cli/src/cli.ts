#!/usr/bin/env node

/** The `rondo` command. */

import { createStatusLine } from './io.ts'
import { main } from './main.ts'

const interrupted = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    // Once is asking nicely.
    if (interrupted.signal.aborted) process.exit(130)
    interrupted.abort(new Error(`Stopped by ${signal}`))
  })
}
// A reader that has seen enough, as in "rondo tools … | head".
process.stdout.on('error', () => process.exit(0))

process.exitCode = await main(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  status: createStatusLine(process.stderr),
  env: process.env,
  cwd: process.cwd(),
  now: Date.now,
  signal: interrupted.signal,
})
// Nothing that is still open, such as a terminal that was read from, keeps the command alive.
process.stdin.destroy()
