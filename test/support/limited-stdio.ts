/** A server over stdio that lets a caller call a tool once in 300 ms. The argument `drafts` turns on the error of the draft. */
import { createServer, generateKey } from 'rondo'
import { rateLimit } from 'rondo/extension'

const server = createServer({ name: 'limited', version: '1.0.0', keys: generateKey(), log: 'off' })
server.use(rateLimit({ each: { calls: 1, perMs: 300 }, drafts: process.argv[2] === 'drafts' }))
server.tool('search', {}, () => 'found')
await server.stdio()
