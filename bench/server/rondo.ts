import type { ServerOptions } from 'rondo'
import {
  Answer,
  DESCRIPTION,
  Input,
  QUESTION_KEY,
  questionFor,
  resultFor,
  SECRET,
  toolNames,
} from '../work.ts'
import { createServer } from './build.ts'
import type { Started, StartServer } from './start.ts'

/** One address plays thousands of callers. */
const sessions = { maxSessionsPerCaller: 10_000, maxKeptBytesPerCaller: 64 * 1_048_576 }

export const start: StartServer = (tools) => startWith(tools, {}, 'never')

/** The tools as tasks, if there is a store and the client supports tasks. */
export async function startWith(
  tools: number,
  options: Partial<ServerOptions>,
  task: 'auto' | 'never',
): Promise<Started> {
  const named = { name: 'bench', version: '1.0.0', keys: `bench:${SECRET}`, log: 'off', sessions } as const
  const server = createServer({ ...named, ...options })
  for (const name of toolNames(tools)) {
    server.tool(name, { description: DESCRIPTION, input: Input, task }, async ({ id, resolution }, ctx) => {
      if (resolution !== undefined) return resultFor(id, resolution)
      const answer = await ctx.ask(QUESTION_KEY, { message: questionFor(id), schema: Answer })
      return resultFor(id, answer.resolution)
    })
  }
  const { url } = await server.listen({ port: 0, signals: false })
  return { url: new URL(url), close: server.close }
}

/** With these options, and beside it in the same process a plain server to compare it with. */
export async function startBeside(
  tools: number,
  options: Partial<ServerOptions>,
  plainFirst = true,
): Promise<Started & { readonly plain: URL }> {
  const startPlain = () => startWith(tools, {}, 'never')
  const first = plainFirst ? await startPlain() : undefined
  const started = await startWith(tools, options, 'never')
  const { url: plain } = first ?? (await startPlain())
  return { ...started, plain }
}
