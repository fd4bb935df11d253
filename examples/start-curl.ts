/** Requests to copy into a terminal. */

interface Shown {
  readonly method: string
  /** The target of the request; over HTTP it is also a header. */
  readonly name: string
  readonly params: Readonly<Record<string, unknown>>
}

const VERSION = '2026-07-28'
const CAPABILITIES = { elicitation: { form: {} }, extensions: { 'io.modelcontextprotocol/tasks': {} } }

export function toCurl(url: string, { method, name, params }: Shown): string {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': VERSION,
    'io.modelcontextprotocol/clientCapabilities': CAPABILITIES,
  }
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } })
  const headers = {
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    'MCP-Protocol-Version': VERSION,
    'Mcp-Method': method,
    'Mcp-Name': name,
  }
  const flags = Object.entries(headers).map(([header, text]) => `-H '${header}: ${text}'`)
  return `curl -s ${url} ${flags.join(' ')} -d '${body}'`
}

export function tryOut(url: string, hasTasks: boolean): string {
  const call = { name: 'resolve_bug', arguments: { id: 7 } }
  const inputResponses = { resolution: { action: 'accept', content: { resolution: 'Fixed' } } }
  const again = { ...call, inputResponses, requestState: 'STATE' }
  const report = { name: 'report', arguments: { year: 2026 } }
  const steps: [string, Shown][] = [
    ['Call a tool that asks', { method: 'tools/call', name: 'resolve_bug', params: call }],
    [
      'Answer: repeat the call, with the requestState from the response in place of STATE',
      { method: 'tools/call', name: 'resolve_bug', params: again },
    ],
    [
      hasTasks
        ? 'Call a tool that continues as a task; the response has its taskId'
        : 'Call a tool that takes 12 seconds',
      { method: 'tools/call', name: 'report', params: report },
    ],
  ]
  const look: Shown = { method: 'tasks/get', name: 'TASK', params: { taskId: 'TASK' } }
  if (hasTasks) steps.push(['Get its status, with the taskId in place of both TASKs', look])
  const parts = steps.map(([what, shown], i) => `${i + 1}. ${what}:\n\n${toCurl(url, shown)}`)
  return [`Serving ${url}`, ...parts, 'Stop with Ctrl-C.'].join('\n\n')
}
