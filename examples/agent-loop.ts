import { createInterface } from 'node:readline/promises'
import { type Client, connect, type FormHandler, RondoError, type Tool } from 'rondo/client'
import { checkForm, readForm } from 'rondo/forms'

export type Message = { readonly role: 'user' | 'assistant' | 'tool'; readonly content: string }

/** One reply of a model: text for the user, or a tool that it wants to call. */
export type Reply =
  | { readonly text: string }
  | { readonly tool: string; readonly args: Record<string, unknown> }

/** Your model: receives the conversation and the tools, and replies. */
export type Model = (messages: readonly Message[], tools: readonly Tool[]) => Promise<Reply>

/** Lets a model call tools until it has something to say to the user. */
export async function runAgent(client: Client, model: Model, prompt: string, maxTurns = 10): Promise<string> {
  const tools = await client.listTools()
  const messages: Message[] = [{ role: 'user', content: prompt }]
  for (let turn = 0; turn < maxTurns; turn++) {
    const reply = await model(messages, tools)
    if ('text' in reply) return reply.text
    messages.push({ role: 'assistant', content: JSON.stringify(reply) })
    messages.push({ role: 'tool', content: await callTool(client, reply.tool, reply.args) })
  }
  return `Stopped after ${maxTurns} tool calls.`
}

/** The result as text. An error is text too, so the model can read it and do something else. */
async function callTool(client: Client, name: string, args: Record<string, unknown>): Promise<string> {
  try {
    const { content, isError } = await client.callTool(name, args)
    return JSON.stringify({ content, isError: isError ?? false })
  } catch (error) {
    if (error instanceof RondoError) return JSON.stringify({ error: error.message })
    throw error
  }
}

/** Stands for a model: calls the tool once, then repeats its result. */
export const scripted: Model = async (messages) => {
  const last = messages.at(-1)
  if (last?.role === 'tool') return { text: `Done: ${last.content}` }
  return {
    tool: 'update_work_item',
    args: { workItemId: 4522, fields: { 'System.State': 'Resolved' } },
  }
}

if (process.argv[1] === import.meta.filename) {
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const form: FormHandler = async ({ message, requestedSchema }, { server, signal }) => {
    const { fields } = readForm(requestedSchema)
    console.log(`${server.target} asks: ${message}`)
    const typed: Record<string, string> = {}
    for (const { name, title, options } of fields) {
      const choices = options ? ` (${options.map((option) => option.value).join(', ')})` : ''
      typed[name] = await terminal.question(`${title}${choices}: `, { signal })
    }
    const send = await terminal.question('Send? (yes, no, later): ', { signal })
    if (send !== 'yes') return { action: send === 'no' ? 'decline' : 'cancel' }
    const checked = checkForm(fields, typed)
    if (checked.ok) return { action: 'accept', content: checked.content }
    console.log(`Not sent. ${checked.problems.map((problem) => problem.message).join('. ')}`)
    return { action: 'cancel' }
  }
  const target = process.argv[2] ?? 'http://127.0.0.1:3000/mcp'
  const client = await connect(target, { answers: { elicitation: { form } } })
  console.log(await runAgent(client, scripted, await terminal.question('You: ')))
  terminal.close()
  await client.close()
}
