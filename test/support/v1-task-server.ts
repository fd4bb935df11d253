/** A server made with the official package of the first generation whose tools run as tasks of 2025-11-25. */

import type { CreateTaskRequestHandlerExtra } from '@modelcontextprotocol/sdk/experimental/tasks/interfaces.js'
import {
  InMemoryTaskMessageQueue,
  InMemoryTaskStore,
} from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import {
  type CallToolResult,
  CreateMessageResultSchema,
  ElicitResultSchema,
  ListRootsResultSchema,
} from '@modelcontextprotocol/sdk/types.js'

type Extra = CreateTaskRequestHandlerExtra

const text = (value: string): CallToolResult => ({ content: [{ type: 'text', text: value }] })
const form = (message: string, field: string) => ({
  method: 'elicitation/create' as const,
  params: {
    mode: 'form' as const,
    message,
    requestedSchema: {
      type: 'object' as const,
      properties: { [field]: { type: 'string' as const } },
      required: [field],
    },
  },
})

export function createV1TaskServer(): McpServer {
  const server = new McpServer(
    { name: 'v1-tasks', version: '1.32.0' },
    {
      capabilities: { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } },
      taskStore: new InMemoryTaskStore(),
      taskMessageQueue: new InMemoryTaskMessageQueue(),
    },
  )
  register(server, 'plain', async () => text('done'))
  register(server, 'greet', async ({ sendRequest }, taskId) => {
    const related = { relatedTask: { taskId } } as never
    const who = await sendRequest(form('Who are you?', 'name'), ElicitResultSchema, related)
    const mood = await sendRequest(form('How are you?', 'mood'), ElicitResultSchema, related)
    return text(`Hello, ${who.content?.name}, ${mood.content?.mood}!`)
  })
  register(server, 'consult', async ({ sendRequest }, taskId) => {
    const related = { relatedTask: { taskId } } as never
    const content = { type: 'text' as const, text: 'An idea?' }
    const params = { messages: [{ role: 'user' as const, content }], maxTokens: 10 }
    const idea = await sendRequest(
      { method: 'sampling/createMessage', params },
      CreateMessageResultSchema,
      related,
    )
    const where = await sendRequest({ method: 'roots/list' }, ListRootsResultSchema, related)
    return text(JSON.stringify({ model: idea.model, roots: where.roots }))
  })
  register(server, 'hang', () => new Promise(() => {}))
  return server
}

function register(
  server: McpServer,
  name: string,
  run: (extra: Extra, taskId: string) => Promise<CallToolResult>,
): void {
  const handler = {
    async createTask(extra: Extra) {
      const task = await extra.taskStore.createTask({ ttl: 60_000, pollInterval: 50 })
      run(extra, task.taskId)
        .then((result) => extra.taskStore.storeTaskResult(task.taskId, 'completed', result))
        .catch((error) => extra.taskStore.storeTaskResult(task.taskId, 'failed', text(String(error))))
      return { task }
    },
    getTask: ({ taskId, taskStore }: Extra & { taskId: string }) => taskStore.getTask(taskId),
    getTaskResult: ({ taskId, taskStore }: Extra & { taskId: string }) => taskStore.getTaskResult(taskId),
  }
  const config = { description: name, execution: { taskSupport: 'required' as const } }
  server.experimental.tasks.registerToolTask(name, config, handler as never)
}
