/**
 * The client command of the official suite: started as `CMD <server-url>`, the scenario in the environment. Each scenario
 * is a short program that uses `rondo/client`; the suite's server checks what it receives.
 */

import {
  type Client,
  connect,
  type ElicitContent,
  type ElicitFormParams,
  type ElicitResult,
  type JsonSchema,
} from '../../src/client.ts'

type Scenario = (client: Client, context: Readonly<Record<string, unknown>>) => Promise<void>

interface ToolCall {
  readonly name: string
  readonly arguments?: Readonly<Record<string, unknown>>
}

const scenarios: Readonly<Record<string, Scenario>> = {
  async initialize(client) {
    await client.listTools()
  },

  async 'elicitation-sep1034-client-defaults'(client) {
    for (const tool of await client.listTools()) await client.callTool(tool.name)
  },

  async 'sse-retry'(client) {
    for (const tool of await client.listTools()) await client.callTool(tool.name)
  },

  async tools_call(client) {
    await client.listTools()
    await client.callTool('add_numbers', { a: 5, b: 3 })
  },

  async 'request-metadata'(client) {
    await client.listTools()
  },

  async 'sep-2322-client-request-state'(client) {
    for (const tool of ['echo_state', 'no_state', 'unrelated', 'no_result_type']) {
      await client.callTool(`test_mrtr_${tool}`)
    }
  },

  async 'http-standard-headers'(client) {
    const [tool] = await client.listTools()
    await client.callTool(tool?.name ?? '')
    const [resource] = await client.listResources()
    await client.readResource(resource?.uri ?? '')
    const [prompt] = await client.listPrompts()
    await client.getPrompt(prompt?.name ?? '')
  },

  async 'http-custom-headers'(client, context) {
    await client.listTools()
    for (const call of context.toolCalls as readonly ToolCall[]) {
      await client.callTool(call.name, call.arguments)
    }
  },

  async 'http-invalid-tool-headers'(client) {
    for (const tool of await client.listTools()) await client.callTool(tool.name, { region: 'us-east1' })
  },

  async 'json-schema-ref-no-deref'(client) {
    await client.listTools()
  },

  async 'json-schema-2020-12-preservation'(client) {
    const tools = await client.listTools()
    const schema = tools.find((tool) => tool.name === 'json_schema_2020_12_tool')?.inputSchema
    await client.callTool('json_schema_echo', { schema })
  },
}

function defaultsOf({ properties = {} }: JsonSchema): ElicitContent {
  const offered = Object.entries(properties as Record<string, { default?: string }>)
  return Object.fromEntries(
    offered.flatMap(([name, field]) => (field.default === undefined ? [] : [[name, field.default]])),
  )
}

async function main(): Promise<void> {
  const name = process.env.MCP_CONFORMANCE_SCENARIO ?? ''
  const url = process.argv[2]
  const scenario = Object.hasOwn(scenarios, name) ? scenarios[name] : undefined
  if (url === undefined || scenario === undefined) throw new Error(`No scenario "${name}" for "${url}"`)
  // Accepts, with the default of each field.
  const yes = ({ requestedSchema }: ElicitFormParams): ElicitResult => ({
    action: 'accept',
    content: { confirmed: true, ...defaultsOf(requestedSchema) },
  })
  const client = await connect(url, {
    clientInfo: { name: 'rondo-conformance', version: '1.0.0' },
    answers: {
      elicitation: { form: yes, url: () => ({ action: 'accept' }) },
      sampling: () => ({ role: 'assistant', content: { type: 'text', text: 'yes' }, model: 'none' }),
      roots: [],
    },
    onWarning: (text) => console.error(text),
  })
  try {
    await scenario(client, JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}'))
  } finally {
    await client.close()
  }
}

await main()
