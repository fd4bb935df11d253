/**
 * The scenarios on an official server: each declaration becomes a registration there, with a callback of `rondo/sdk`.
 */

import {
  type CallToolResult,
  type GetPromptResult,
  McpServer,
  type ReadResourceResult,
  type ServerOptions,
  type StandardSchemaWithJSON,
} from '@modelcontextprotocol/server'
import { createRondo, type Rondo, type RondoOptions } from 'rondo/sdk'
import { createWorld, type Scenario, type World } from '../scenarios/scenario.ts'

type Declare = Parameters<Scenario['declare']>[0]
type AnyHandler = (...params: readonly unknown[]) => Promise<unknown>

const textResult = (text: string): CallToolResult => ({ content: [{ type: 'text', text }] })
const promptResult = (text: string): GetPromptResult => ({
  messages: [{ role: 'user', content: { type: 'text', text } }],
})
const readResult = (uri: string, text: string): ReadResourceResult => ({ contents: [{ uri, text }] })

/** Handlers of scenarios return texts; here each is wrapped in an official result. */
function declareOn(server: McpServer, rondo: Rondo): Declare {
  const declare = {
    tool(name: string, { input }: { input?: StandardSchemaWithJSON }, handler: AnyHandler) {
      const config = input ? { inputSchema: input } : {}
      server.registerTool(
        name,
        config,
        rondo.tool<unknown>(async (args, ctx) => textResult(String(await handler(args, ctx)))),
      )
    },
    prompt(name: string, _definition: object, handler: AnyHandler) {
      server.registerPrompt(
        name,
        {},
        rondo.prompt(async (args, ctx) => promptResult(String(await handler(args, ctx)))),
      )
    },
    resource(uri: string, { name }: { name: string }, handler: AnyHandler) {
      server.registerResource(
        name,
        uri,
        {},
        rondo.resource(async (url, ctx) => readResult(url.href, String(await handler(url.href, ctx)))),
      )
    },
  }
  return declare as unknown as Declare
}

/** Ids are the same in every flow, so that effect keys can be compared between servers and processes. */
export const FIXED_IDS = { randomId: () => 'fixed-id-of-every-flow' }

export interface SdkServers {
  readonly world: World
  readonly rondo: Rondo
  /** A new server for each request or connection, as the official entrances require. */
  factory(): McpServer
}

/** Capabilities declared in the constructor: the handlers are set before anything can be mounted. */
export const UP_FRONT: ServerOptions = { capabilities: { tools: {}, prompts: {}, resources: {} } }

export function serveScenarios(
  scenarios: readonly Scenario[],
  options: Partial<RondoOptions> = {},
  serverOptions: ServerOptions = {},
): SdkServers {
  const world = createWorld()
  const rondo = createRondo({ audience: 'scenarios', dev: true, log: 'off', ...FIXED_IDS, ...options })
  return {
    world,
    rondo,
    factory() {
      const server = rondo.mount(new McpServer({ name: 'scenarios', version: '1.0.0' }, serverOptions))
      const declare = declareOn(server, rondo)
      for (const scenario of scenarios) scenario.declare(declare, world)
      server.registerTool('world', { description: 'What happened outside since this was asked' }, () => {
        const { effects, steps } = world
        return textResult(JSON.stringify({ effects: effects.splice(0), steps: steps.splice(0) }))
      })
      return server
    },
  }
}
