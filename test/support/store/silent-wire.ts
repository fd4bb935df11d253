import { connect, createServer, type Socket } from 'node:net'

/** A proxy to a database that can go silent: connections stay open and new ones open, but nothing passes. */
export interface Wire {
  readonly connectionString: string
  cut(): void
  /** Bytes lost since then. */
  readonly lost: number
  close(): void
}

export async function startWire(connectionString: string): Promise<Wire> {
  const target = new URL(connectionString)
  const sockets = new Set<Socket>()
  let silent = false
  let lost = 0
  const lose = (socket: Socket) => {
    socket.on('data', ({ length }: Buffer) => {
      lost += length
    })
    socket.resume()
  }
  const server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname)
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => socket.destroy())
    }
    if (silent) return lose(near)
    near.pipe(far)
    far.pipe(near)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const through = new URL(connectionString)
  through.port = String(address.port)
  return {
    connectionString: through.href,
    cut() {
      silent = true
      for (const socket of sockets) {
        socket.unpipe()
        lose(socket)
      }
    },
    get lost() {
      return lost
    },
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
