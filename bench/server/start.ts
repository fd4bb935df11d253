/** A server under test, which listens on a free loopback port. */
export interface Started {
  readonly url: URL
  /** What requests have to send as a bearer token. */
  readonly token?: string
  close(): Promise<void>
}

export type StartServer = (tools: number) => Promise<Started>

/** The environment variable with the directory of another checkout, in which `npm run build` has run. */
export const BUILD_VARIABLE = 'RONDO_BENCH_BUILD'
