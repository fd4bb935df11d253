/** The server and the messages of the examples in the accepted proposal. */

import { createServer, generateKey, type Server } from 'rondo'
import { z } from 'zod'
import { declaring } from './draft-client.ts'

const keys = generateKey('draft')
export const options = { keys, log: 'off' as const }

export const REPORT = 'Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy'

export function weather(): Server {
  const server = createServer({ name: 'weather', version: '1.0.0', ...options })
  server.tool('get_weather', { input: z.object({ location: z.string() }) }, async (_args, ctx) => {
    await ctx.ask('github_login', {
      message: 'Please provide your GitHub username',
      schema: z.object({ name: z.string() }),
    })
    return { content: [{ type: 'text', text: REPORT }], isError: false }
  })
  server.resource('notes://today', { name: 'Today' }, () => 'Buy milk')
  server.prompt('brief', {}, () => 'Be brief')
  return server
}

export const call = (id: number, name: string, args: object, more: object = {}) =>
  declaring({
    jsonrpc: '2.0',
    id,
    method: 'tools/call',
    params: { name, arguments: args, ...more },
  })
export const getWeather = (id: number, more: object = {}) =>
  call(id, 'get_weather', { location: 'New York' }, more)

export const githubLogin = {
  github_login: {
    method: 'elicitation/create',
    params: {
      mode: 'form',
      message: 'Please provide your GitHub username',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    },
  },
}

export const stateOf = ({ result }: { readonly result?: unknown }): string =>
  (result as { requestState: string }).requestState
