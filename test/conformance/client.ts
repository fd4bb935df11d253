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
} from '../../packages/rondo/src/client.ts'
import { enterprise, type OAuthOptions, oauth, workload } from '../../packages/rondo/src/client-oauth.ts'

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

const AUTH = /^auth\//

/** Logs in by itself: the suite's authorization server redirects at once. */
const login: OAuthOptions['login'] = () => ({
  redirectUri: 'http://localhost:3000/callback',
  async visit({ url }) {
    const response = await fetch(url, { redirect: 'manual' })
    return response.headers.get('location') ?? ''
  },
})

/** The options for the credentials that a scenario gives. */
async function oauthOptions(url: string, context: Readonly<Record<string, unknown>>): Promise<OAuthOptions> {
  const { client_id: id, client_secret: secret, private_key_pem: key, signing_algorithm: algorithm } = context
  const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? ''
  const dpop = scenario.startsWith('auth/dpop')
  const common = { login, dpop, clientMetadataUrl: 'https://conformance-test.local/client-metadata.json' }
  if (typeof id !== 'string') return common
  const issuer = typeof context.issuer === 'string' ? context.issuer : await issuerOf(url)
  const privateKey = typeof key === 'string' ? { key, algorithm: algorithm as 'ES256' } : undefined
  const client = {
    id,
    issuer,
    ...(typeof secret === 'string' && { secret }),
    ...(privateKey && { privateKey }),
  }
  return { ...common, client, grant: grantFor(scenario, context) }
}

function grantFor(scenario: string, context: Readonly<Record<string, unknown>>): OAuthOptions['grant'] {
  const texts = context as Readonly<Record<string, string>>
  switch (scenario) {
    case 'auth/enterprise-managed-authorization':
      return enterprise({
        issuer: texts.idp_issuer ?? '',
        client: { id: texts.idp_client_id ?? '' },
        idToken: () => texts.idp_id_token ?? '',
      })
    case 'auth/wif-jwt-bearer':
      return workload({ token: () => texts.valid_jwt ?? '' })
    default:
      return scenario.startsWith('auth/client-credentials') ? 'client_credentials' : 'authorization_code'
  }
}

/** The issuer at which the credentials of a scenario are valid, if it does not say so. */
async function issuerOf(url: string): Promise<string> {
  const { origin, pathname } = new URL(url)
  const response = await fetch(`${origin}/.well-known/oauth-protected-resource${pathname}`)
  const { authorization_servers: issuers } = (await response.json()) as { authorization_servers: string[] }
  return issuers[0] ?? ''
}

async function callProtected(client: Client): Promise<void> {
  await client.listTools()
  await client.callTool('test-tool')
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
  const own = Object.hasOwn(scenarios, name) ? scenarios[name] : undefined
  const scenario = AUTH.test(name) ? callProtected : own
  const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}')
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
    ...(AUTH.test(name) && { auth: oauth(await oauthOptions(url, context)) }),
  })
  try {
    await scenario(client, context)
  } finally {
    await client.close()
  }
}

await main()
