import { createInterface } from 'node:readline/promises'
import { type CallToolResult, type ConnectTarget, connect } from 'rondo/client'

/** A person who can be asked: resolves with a line of text, or with `undefined` if nobody answers. */
export type Person = (question: string, signal: AbortSignal) => Promise<string | undefined>

/** Resolves a bug and asks a person whatever the server wants to know. */
export async function resolveBug(target: ConnectTarget, id: number, person: Person): Promise<CallToolResult> {
  const client = await connect(target, {
    answers: {
      elicitation: {
        form: async ({ message, requestedSchema }, { server, signal }) => {
          const fields = Object.keys(requestedSchema.properties ?? {})
          // Without fields it is a yes-or-no question, which this loop would answer without asking anybody.
          if (fields.length === 0) return { action: 'cancel' }
          const content: Record<string, string> = {}
          for (const field of fields) {
            const line = await person(`${server.target} asks: ${message} [${field}]`, signal)
            if (line === undefined) return { action: 'cancel' }
            content[field] = line
          }
          return { action: 'accept', content }
        },
      },
    },
  })
  const args = { workItemId: id, fields: { 'System.State': 'Resolved' } }
  const result = await client.callTool('update_work_item', args)
  await client.close()
  return result
}

if (process.argv[1] === import.meta.filename) {
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const gone = new Promise<undefined>((resolve) => terminal.once('close', () => resolve(undefined)))
  const person: Person = (text, signal) => Promise.race([gone, terminal.question(`${text} `, { signal })])
  const result = await resolveBug(process.argv[2] ?? 'http://127.0.0.1:3000/mcp', 4522, person)
  console.log(result.content)
  terminal.close()
}
