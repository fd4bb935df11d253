import { type CallToolResult, connect } from 'rondo/client'
import { loopback, oauth } from 'rondo/client/oauth'

/** Calls a tool of a protected server; a person logs in when the server asks for it. */
export async function callProtected(
  url: string,
  tool: string,
  onLink: (link: string) => void,
): Promise<CallToolResult> {
  const auth = oauth({
    clientName: 'My host',
    login: loopback({ onLink: ({ url }) => onLink(url.href) }),
  })
  const client = await connect(url, { auth })
  const result = await client.callTool(tool)
  await client.close()
  return result
}

if (process.argv[1] === import.meta.filename) {
  const [url = 'http://127.0.0.1:3000/mcp', tool = 'whoami'] = process.argv.slice(2)
  const show = (link: string) => console.log(`Open this link to log in:\n${link}`)
  console.log((await callProtected(url, tool, show)).content)
}
