/** A server under test, which listens on a free loopback port. */
export interface Started {
  readonly url: URL
  close(): Promise<void>
}

export type StartServer = (tools: number) => Promise<Started>
