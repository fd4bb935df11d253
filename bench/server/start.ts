import type { Credential } from '../load/credential.ts'

/** A server under test, which listens on a free loopback port. */
export interface Started {
  readonly url: URL
  readonly credential?: Credential
  /** A server without the options that are measured, in the same process. */
  readonly plain?: URL
  close(): Promise<void>
}

/** `plainFirst` says which of two servers in one process starts first, which makes a difference. */
export type StartServer = (tools: number, plainFirst?: boolean) => Promise<Started>

/** The argument of the server's process that makes the plain server start after the other one. */
export const PLAIN_LAST = 'plain-last'

/** The environment variable with the directory of another checkout, in which `npm run build` has run. */
export const BUILD_VARIABLE = 'RONDO_BENCH_BUILD'
