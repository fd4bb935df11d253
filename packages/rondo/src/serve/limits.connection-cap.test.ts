import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { expectServing, startEcho } from '../../../../test/support/echo-listening.ts'

const sockets: Socket[] = []
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
})

/** Opens a connection and asks something over it: whether it was answered. */
async function isTaken(port: number): Promise<{ socket: Socket; taken: boolean }> {
  const socket = connect(port, '127.0.0.1')
  sockets.push(socket)
  socket.on('error', () => {})
  const first = Promise.race([
    once(socket, 'data').then(() => true),
    once(socket, 'close').then(() => false),
  ]).catch(() => false)
  socket.write('GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n')
  return { socket, taken: await first }
}

describe('connections of one address', () => {
  it('T20 are cut beyond the limit, until another one has closed', async () => {
    const { port } = await startEcho({ maxConnectionsPerAddress: 2 })
    const held = [await isTaken(port), await isTaken(port)]
    expect(held.map(({ taken }) => taken)).toEqual([true, true])
    expect((await isTaken(port)).taken).toBe(false)
    held[0]?.socket.end()
    await once(held[0]?.socket as Socket, 'close')
    await vi.waitFor(() => expectServing(port), { timeout: 120_000 })
    await vi.waitFor(async () => expect((await isTaken(port)).taken).toBe(true), { timeout: 120_000 })
    expect((await isTaken(port)).taken).toBe(false)
  })

  it('are not limited by default', async () => {
    const { port } = await startEcho()
    for (let i = 0; i < 5; i++) expect((await isTaken(port)).taken).toBe(true)
  })
})
