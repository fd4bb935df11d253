/** A client on any runtime: `call.js URL MODE`. Prints the text of the result. */

import { connect } from 'rondo/client'

const [url, mode] = process.argv.slice(2)
const client = await connect(url, {
  mode,
  answers: { elicitation: () => ({ action: 'accept', content: { resolution: 'Fixed' } }) },
})
const { content } = await client.callTool('resolve_bug', { id: 7 })
await client.close()
console.log(content[0].text)
