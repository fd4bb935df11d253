/** An older server over stdio with one tool, which the first argument names. */
import { createInterface } from 'node:readline'

const [, , name] = process.argv
const RESULTS = {
  initialize: {
    protocolVersion: '2025-06-18',
    capabilities: { tools: {} },
    serverInfo: { name: 'one-tool', version: '1.0.0' },
  },
  'tools/list': { tools: [{ name, inputSchema: { type: 'object' } }] },
}
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line)
  if (id === undefined) return
  const result = RESULTS[method]
  const reply = result ? { result } : { error: { code: -32601, message: 'Method not found' } }
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...reply })}\n`)
})
