/** A client in a process of its own: `follower.js URL COUNT` calls so many tools at once, each of which becomes a task, and follows them to their end. */

import { connect } from 'rondo/client'
import { resultFor } from '../work.ts'

const [url = '', count = '1'] = process.argv.slice(2)
const client = await connect(url)
const call = async (id: number): Promise<void> => {
  const { content } = await client.callTool('wait', { id })
  const [first] = content
  if (first?.type !== 'text' || first.text !== resultFor(id, 'Fixed'))
    throw new Error(`Unexpected result: ${JSON.stringify(content)}`)
}
await Promise.all(Array.from({ length: Number(count) }, (_, id) => call(id)))
await client.close()
