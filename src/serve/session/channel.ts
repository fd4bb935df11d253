/** Where messages to a client of a session go: the stream of one call, the session's own stream, or stdout. */
export interface Channel {
  /**
   * Sends one message. One that is `droppable` (progress, logs) may be left out for a client that does not read. `eventId`
   * names its event where any instance must know the name.
   */
  send(json: string, droppable: boolean, eventId?: string): void
  /** Shows that something is still going on, where that takes no message. */
  beat?(): void
  /** True if requests to the client can be sent here. */
  readonly open: boolean
}
