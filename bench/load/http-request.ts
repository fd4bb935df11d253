/** A whole MCP request of 2026-07-28, as it is sent. */

export interface Message {
  readonly id: number
  readonly method: string
  /** The value of `Mcp-Name`. */
  readonly name: string
  readonly params: object
}

/** `headers` are more lines of the head. */
export function httpRequest(
  url: URL,
  { id, method, name, params }: Message,
  headers: readonly string[] = [],
): string {
  const body = JSON.stringify({ jsonrpc: '2.0', id, method, params })
  const head = [
    `POST ${url.pathname}${url.search} HTTP/1.1`,
    `Host: ${url.host}`,
    'Content-Type: application/json',
    'Accept: application/json, text/event-stream',
    'MCP-Protocol-Version: 2026-07-28',
    `Mcp-Method: ${method}`,
    `Mcp-Name: ${name}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...headers,
  ]
  return `${head.join('\r\n')}\r\n\r\n${body}`
}
