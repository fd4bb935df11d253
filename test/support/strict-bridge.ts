/**
 * A bridge from stdio to the URL in its first argument, as mcp-remote is: it passes on every message that the schema of the
 * official package allows, and reports every other on stderr. Extra names, in the second argument, are declared as
 * experimental capabilities on behalf of the client.
 */

import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { isInitializeRequest } from '@modelcontextprotocol/sdk/types.js'

const [url = '', ...extra] = process.argv.slice(2)
const near = new StdioServerTransport()
const far = new StreamableHTTPClientTransport(new URL(url))
const report = (error: Error): void => console.error(`dropped: ${error.message}`)

near.onmessage = (message) => {
  if (isInitializeRequest(message))
    for (const name of extra)
      message.params.capabilities.experimental = { ...message.params.capabilities.experimental, [name]: {} }
  far.send(message).catch(report)
}
far.onmessage = (message) => {
  if ('result' in message && typeof message.result.protocolVersion === 'string')
    far.setProtocolVersion(message.result.protocolVersion)
  near.send(message).catch(report)
}
near.onerror = report
far.onerror = report
process.stdin.once('end', () => process.exit())
await far.start()
await near.start()
