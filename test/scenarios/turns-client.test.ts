/** Our client and our server in turns: every scenario, each request on a new instance. */

import { createServer, generateKey, type Server } from 'rondo'
import { type Answers, type CallToolResult, type ConnectOptions, connect } from 'rondo/client'
import { describe, expect, it } from 'vitest'
import { toResponse } from '../../packages/rondo/src/testing/call.ts'
import { createWorld, type Scenario, scenarios, type World } from './scenario.ts'

const keys = generateKey('turns')

function make(scenario: Scenario, world: World): Server {
  const server = createServer({ name: 'scenarios', version: '1.0.0', keys, dev: true, log: 'off' })
  scenario.declare(server, world)
  return server
}

/** The answers of the script, in the order of its questions. */
function answersOf({ script }: Scenario): Answers {
  const left = Object.values(script)
  const next = (method: string) => (params: unknown) => {
    const answer = left.shift()
    if (answer === undefined) throw new Error('The script has no more answers')
    return toResponse({ method, params } as never, answer) as never
  }
  return {
    elicitation: next('elicitation/create'),
    sampling: next('sampling/createMessage'),
    roots: next('roots/list'),
  }
}

function open(scenario: Scenario, world: World, options: ConnectOptions = {}) {
  const posts: { headers: Headers; body: string }[] = []
  const target = {
    async fetch(request: Request) {
      const body = await request.clone().text()
      posts.push({ headers: request.headers, body })
      return make(scenario, world).fetch(request)
    },
  }
  return { posts, client: connect(target, { mode: '2025-11-25', answers: answersOf(scenario), ...options }) }
}

function textOf(result: object): string {
  const { content, messages, contents } = result as Record<
    string,
    { text?: string; content?: { text: string } }[]
  >
  return (content ?? messages ?? contents ?? []).map((one) => one.text ?? one.content?.text).join('\n')
}

describe.each(scenarios)('our client in turns: $name', (scenario) => {
  it('C5 C6 F2 F5 R10 runs to its result', async () => {
    const world = createWorld()
    const { client: opening, posts } = open(scenario, world)
    const client = await opening
    const { method, target, args } = scenario
    const result =
      method === 'tools/call'
        ? await client.callTool(target, args)
        : await (method === 'prompts/get' ? client.getPrompt(target) : client.readResource(target))
    expect(textOf(result)).toBe(scenario.text)
    expect((result as CallToolResult).isError ?? false).toBe(scenario.isError ?? false)
    expect(world.effects.map(({ name }) => name)).toEqual(scenario.effects)
    const answered = posts.filter(({ body }) => body.startsWith('['))
    expect(answered.length > 0).toBe(Object.keys(scenario.script).length > 0)
    for (const { headers } of answered) expect(headers.get('last-event-id')).toMatch(/^[\w-]+$/)
    await client.close()
  })

  it('C11 F5 is stored at every question and finished by another client', async () => {
    const world = createWorld()
    const { method, target, args } = scenario
    const request = (
      method === 'resources/read' ? { method, uri: target } : { method, name: target, arguments: args }
    ) as never
    const left = Object.values(scenario.script)
    let client = await open(scenario, world).client
    let step = await client.start(request)
    for (let i = 0; step.status === 'input_required' && i < 20; i++) {
      const pending = JSON.parse(JSON.stringify(step.pending))
      const questions = Object.entries(step.pending.questions)
      const given = questions.map(([key, question]) => [key, toResponse(question, left.shift() ?? {})])
      await client.close()
      client = await open(scenario, world).client
      step = await client.resume(pending, Object.fromEntries(given))
    }
    if (step.status !== 'complete') throw new Error(JSON.stringify(step))
    expect(textOf(step.result)).toBe(scenario.text)
    expect(world.effects.map(({ name }) => name)).toEqual(scenario.effects)
    await client.close()
  })
})
