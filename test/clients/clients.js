/** Clients of others, each used as its documentation shows. A client that has a way to answer questions does. Each is loaded when it is used. */

const INFO = { name: 'clients', version: '1.0.0' }

/** One answer for every question of the server. */
const answer = (message) => ({
  action: 'accept',
  content: /which bug/i.test(message) ? { duplicateOf: 1 } : { resolution: 'Duplicate' },
})

const textOf = (result) => JSON.stringify(result)

export const CLIENTS = {
  'rondo/client': {
    package: 'rondo',
    async open(url) {
      const { connect } = await import('rondo/client')
      const client = await connect(url, { answers: { elicitation: ({ message }) => answer(message) } })
      return {
        call: async (name, args) => textOf(await client.callTool(name, args)),
        close: () => client.close(),
      }
    },
  },
  'official client 2': {
    package: '@modelcontextprotocol/client',
    async open(url) {
      const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client')
      const client = new Client(INFO, {
        capabilities: { elicitation: { form: {} } },
        versionNegotiation: { mode: 'auto' },
      })
      client.setRequestHandler('elicitation/create', ({ params }) => answer(params.message))
      await client.connect(new StreamableHTTPClientTransport(new URL(url)))
      return {
        call: async (name, args) => textOf(await client.callTool({ name, arguments: args })),
        close: () => client.close(),
      }
    },
  },
  'official client 1': {
    package: '@modelcontextprotocol/sdk',
    async open(url) {
      const [{ Client }, { StreamableHTTPClientTransport }, { ElicitRequestSchema }] = await Promise.all([
        import('@modelcontextprotocol/sdk/client/index.js'),
        import('@modelcontextprotocol/sdk/client/streamableHttp.js'),
        import('@modelcontextprotocol/sdk/types.js'),
      ])
      const client = new Client(INFO, { capabilities: { elicitation: { form: {} } } })
      client.setRequestHandler(ElicitRequestSchema, ({ params }) => answer(params.message))
      await client.connect(new StreamableHTTPClientTransport(new URL(url)))
      return {
        call: async (name, args) => textOf(await client.callTool({ name, arguments: args })),
        close: () => client.close(),
      }
    },
  },
  'AI SDK': {
    package: '@ai-sdk/mcp',
    async open(url) {
      const { createMCPClient, ElicitationRequestSchema } = await import('@ai-sdk/mcp')
      const client = await createMCPClient({
        transport: { type: 'http', url },
        capabilities: { elicitation: { form: {} } },
      })
      client.onElicitationRequest(ElicitationRequestSchema, ({ params }) => answer(params.message))
      const tools = await client.tools()
      return {
        call: async (name, args) =>
          textOf(await tools[name].execute(args, { toolCallId: '1', messages: [] })),
        close: () => client.close(),
      }
    },
  },
  'LangChain adapters': {
    package: '@langchain/mcp-adapters',
    async open(url) {
      const { MultiServerMCPClient } = await import('@langchain/mcp-adapters')
      const client = new MultiServerMCPClient({ mcpServers: { tracker: { transport: 'http', url } } })
      const tools = await client.getTools()
      return {
        call: async (name, args) => textOf(await tools.find((tool) => tool.name === name).invoke(args)),
        close: () => client.close(),
      }
    },
  },
  'OpenAI Agents': {
    package: '@openai/agents',
    async open(url) {
      const { MCPServerStreamableHttp } = await import('@openai/agents')
      const client = new MCPServerStreamableHttp({ url, name: 'tracker' })
      await client.connect()
      return {
        call: async (name, args) => textOf(await client.callTool(name, args)),
        close: () => client.close(),
      }
    },
  },
}
