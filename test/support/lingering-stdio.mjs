/** An older server over stdio that ends at no signal and at no end of its input. It writes its process id to the file of the first argument; with `mute` it never responds. */
import { writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [, , file, manner] = process.argv
process.on('SIGTERM', () => {})
setInterval(() => {}, 1_000)
const write = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
const serverInfo = { name: 'lingering', version: '1.0.0' }
const RESULTS = {
  initialize: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo },
  'tools/list': { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
}
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line)
  if (manner === 'mute' || id === undefined) return
  const result = RESULTS[method]
  write(result ? { id, result } : { id, error: { code: -32601, message: 'Method not found' } })
})
writeFileSync(file, String(process.pid))
