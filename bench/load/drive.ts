/** Sends requests over many connections at once and checks every response. */

import { type Connection, openConnection, type Response } from './connection.ts'

export interface Exchange {
  /** The whole request as it goes onto the wire. */
  readonly request: string
  /** Throws if this is not the expected response. */
  check(response: Response): void
}

export const CONNECTIONS = 32

/**
 * Opens connections, sends one request over each and then `count` more, the next one on a connection as soon as its last
 * one has a response. `begins` is awaited before these, when everything is open and warm.
 */
export async function drive(
  url: URL,
  count: number,
  exchangeAt: (index: number) => Exchange,
  begins?: () => Promise<void>,
): Promise<void> {
  const connections = await Promise.all(Array.from({ length: CONNECTIONS }, () => openConnection(url)))
  try {
    await sendAll(connections, CONNECTIONS, exchangeAt)
    await begins?.()
    await sendAll(connections, count, exchangeAt)
  } finally {
    for (const connection of connections) connection.close()
  }
}

async function sendAll(
  connections: readonly Connection[],
  count: number,
  exchangeAt: (index: number) => Exchange,
): Promise<void> {
  let next = 0
  await Promise.all(
    connections.map(async (connection) => {
      for (let index = next++; index < count; index = next++) {
        const { request, check } = exchangeAt(index)
        check(await connection.send(request))
      }
    }),
  )
}
