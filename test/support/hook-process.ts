/**
 * A server as its author may write it, mistakes included, in a separate process: hooks that pass on what a caller
 * sent, results that are not JSON, a log that fails. `WEAK=1` serves the same hook without any of our checks, to show that
 * the attacks would end a process.
 */

import { createServer as createHttpServer, type IncomingMessage } from 'node:http'
import { createServer, generateKey } from 'rondo'

interface Written {
  readonly sub?: unknown
  readonly iss?: string
  readonly body?: unknown
  readonly fault?: 'throw' | 'reject'
}

/** Reads the payload of a token without verifying it, as people do to build a challenge. */
async function authenticate(authorization: string | undefined) {
  if (authorization === undefined) return undefined
  const written: Written = JSON.parse(Buffer.from(authorization.split(' ')[1] ?? '', 'base64url').toString())
  if (written.fault !== undefined) throw new Error('The hook failed')
  if (written.body !== undefined) return { status: 401 as const, body: written.body as string }
  if (written.iss === undefined) return { subject: written.sub as string }
  const challenge = `Bearer realm="${written.iss}"`
  return { status: 401 as const, headers: { 'WWW-Authenticate': challenge } }
}

async function start(): Promise<number> {
  const server = createServer({
    name: 'hooks',
    version: '1.0.0',
    keys: generateKey(),
    authenticate: ({ headers }) => authenticate(headers('authorization')),
    shed: () => {
      throw new Error('shed failed')
    },
    log: async () => {
      throw new Error('the log failed')
    },
  })
  server.tool('echo', {}, () => 'still here')
  server.tool('bigint', {}, () => ({ content: [], structuredContent: { n: 1n } }) as never)
  server.tool(
    'toJSON',
    {},
    () =>
      ({
        content: [
          {
            type: 'text',
            text: {
              toJSON() {
                throw new Error('no')
              },
            },
          },
        ],
      }) as never,
  )
  server.tool('leave', {}, async (_args, ctx) => {
    ctx.log('error', 1n)
    await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
    return 'left'
  })
  return (await server.listen({ port: 0, signals: false })).port
}

function startWeak(): Promise<number> {
  const server = createHttpServer(async (req: IncomingMessage, res) => {
    const verdict = await authenticate(req.headers.authorization)
    if (verdict !== undefined && 'status' in verdict && verdict.status === 401) {
      res.writeHead(401, { ...verdict.headers })
      res.end(verdict.body)
    } else if (verdict !== undefined && !('status' in verdict) && verdict.subject === '') {
      throw new TypeError('A principal needs a subject')
    } else res.end('"still here"')
  })
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as { port: number }).port))
  })
}

process.send?.({ port: process.env.WEAK === '1' ? await startWeak() : await start() })
