/**
 * Standard output is the wire: one stray `console.log` of a tool would break it. While it is claimed, whatever else is
 * written there goes to standard error; only the claimant writes to the real one.
 */

import type { Writable } from 'node:stream'

export interface StdoutClaim {
  write(text: string): boolean
  /** Gives standard output back. */
  release(): void
}

export function claimStdout(stdout: Writable, stderr: Writable): StdoutClaim {
  const original = stdout.write
  // The host may have closed it; what a tool prints is then lost, and nothing else.
  const ignore = (): void => {}
  stderr.on('error', ignore)
  stdout.write = stderr.write.bind(stderr) as Writable['write']
  return {
    write: (text) => original.call(stdout, text, 'utf8', () => {}),
    release() {
      stdout.write = original
      stderr.off('error', ignore)
    },
  }
}
