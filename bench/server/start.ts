/** A server under test, which listens on a free loopback port. */
export interface Started {
  readonly url: URL
  /** What requests have to send as a bearer token. */
  readonly token?: string
  /** A server without the options that are measured, in the same process. */
  readonly plain?: URL
  close(): Promise<void>
}

export type StartServer = (tools: number) => Promise<Started>

/** The environment variable with the directory of another checkout, in which `npm run build` has run. */
export const BUILD_VARIABLE = 'RONDO_BENCH_BUILD'
