/** A server under test: listens on a free port of loopback. */
export interface Started {
  readonly url: URL
  close(): Promise<void>
}

export type StartServer = (tools: number) => Promise<Started>
