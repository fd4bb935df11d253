import { type CallToolResult, connect, type Target } from 'rondo/client'

/** Somebody who can be asked: reads a line, or gives nothing if the person walked away. */
export type Person = (question: string, signal: AbortSignal) => Promise<string | undefined>

/** Resolves a bug, asking a person whatever the server wants to know. */
export async function resolveBug(target: Target, id: number, person: Person): Promise<CallToolResult> {
  // #region call
  const client = await connect(target, {
    answers: {
      elicitation: {
        form: async ({ message, requestedSchema }, { server, signal }) => {
          const content: Record<string, string> = {}
          for (const field of Object.keys(requestedSchema.properties ?? {})) {
            const line = await person(`${server.name} asks: ${message} [${field}]`, signal)
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
  // #endregion
  return result
}
