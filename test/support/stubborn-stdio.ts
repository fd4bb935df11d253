/**
 * An older server over stdio that does not know later revisions: with `exit` it ends at the first request that is not a
 * handshake; with `silent` it ignores such requests. With `bridge` it initializes the server behind it at the first request,
 * whatever that is, and that server accepts no second handshake; with `shared` it did so for somebody else.
 */
import { createInterface } from 'node:readline'

interface Message {
  readonly id?: unknown
  readonly method?: string
}

const manner = process.argv[2]
let ready = false
let taken = manner === 'shared'

const refuse = (id: unknown, code: number, message: string): void => {
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } })}\n`)
}

const reply = (id: unknown, result: object): void => {
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`)
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line) as Message
  if (method === 'initialize' && taken) refuse(id, -32600, 'Invalid Request: Server already initialized')
  else if (method === 'initialize') {
    ready = true
    const serverInfo = { name: 'stubborn', version: '0.1.0' }
    reply(id, { protocolVersion: '2025-03-26', capabilities: { tools: {} }, serverInfo })
  } else if (ready && id !== undefined) reply(id, { content: [{ type: 'text', text: 'done' }] })
  else if (!ready && manner === 'exit') process.exit(1)
  else if (!ready && (manner === 'bridge' || manner === 'shared')) {
    taken = true
    refuse(id, -32601, 'Method not found')
  }
})
