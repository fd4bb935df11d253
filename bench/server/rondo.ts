import { createServer } from 'rondo'
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
import type { StartServer } from './start.ts'

export const start: StartServer = async (tools) => {
  const server = createServer({ name: 'bench', version: '1.0.0', keys: `bench:${SECRET}`, log: 'off' })
  for (const name of toolNames(tools)) {
    server.tool(name, { description: DESCRIPTION, input: Input }, async ({ id, resolution }, ctx) => {
      if (resolution !== undefined) return resultFor(id, resolution)
      const answer = await ctx.ask(QUESTION_KEY, { message: questionFor(id), schema: Answer })
      return resultFor(id, answer.resolution)
    })
  }
  const { url } = await server.listen({ port: 0, signals: false })
  return { url: new URL(url), close: server.close }
}
