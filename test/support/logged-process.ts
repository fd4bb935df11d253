/** A server with the log that it has by default. Sends its URL to the parent. `exit` exits before its reply is sent. */

import { createServer, generateKey } from '../../packages/rondo/src/index.ts'

const server = createServer({ name: 'logged', version: '1.0.0', keys: generateKey() })
server.tool('flow', {}, (_args, { flow }) => flow)
server.tool('exit', {}, () => {
  setImmediate(() => process.exit(3))
  return 'exits'
})
const { url } = await server.listen({ port: 0 })
process.send?.({ url })
