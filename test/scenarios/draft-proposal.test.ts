/** The example messages of the accepted proposal, as printed there, in `DRAFT-2026-v1`. */

import { createServer, type Server } from 'rondo'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type WorkItem, workItems } from '../../examples/08-custom-rules.ts'
import { postDraft } from '../support/draft-client.ts'
import { call, getWeather, githubLogin, options, REPORT, stateOf, weather } from '../support/weather.ts'

describe('get_weather', () => {
  it('A3 A5 B1 asks for the login, and completes when the call is retried with it', async () => {
    const asked = await postDraft(weather(), getWeather(2))
    expect(asked).toEqual({
      status: 200,
      type: 'application/json',
      message: {
        jsonrpc: '2.0',
        id: 2,
        result: {
          resultType: 'input_required',
          inputRequests: githubLogin,
          requestState: expect.any(String),
        },
      },
    })
    const inputResponses = { github_login: { action: 'accept', content: { name: 'octocat' } } }
    const done = await postDraft(
      weather(),
      getWeather(3, { inputResponses, requestState: stateOf(asked.message) }),
    )
    expect(done.message).toEqual({
      jsonrpc: '2.0',
      id: 3,
      result: { resultType: 'complete', content: [{ type: 'text', text: REPORT }], isError: false },
    })
  })

  it('B15 B16 ignores responses that nobody requested, and asks again for missing ones', async () => {
    const content = { not_requested_param_name: 'Information the server did not request' }
    const inputResponses = { not_requested_info: { action: 'accept', content } }
    const { message } = await postDraft(weather(), getWeather(3, { inputResponses }))
    expect(message).toEqual({
      jsonrpc: '2.0',
      id: 3,
      result: { resultType: 'input_required', inputRequests: githubLogin, requestState: expect.any(String) },
    })
  })

  it('B14 returns a protocol error for malformed responses', async () => {
    for (const inputResponses of [[], 7, { github_login: 'octocat' }]) {
      const { message, status } = await postDraft(weather(), getWeather(3, { inputResponses }))
      expect(status).toBe(200)
      expect(message).toMatchObject({ id: 3, error: { code: -32602 } })
    }
  })
})

describe('inputRequests and inputResponses', () => {
  const capital = {
    messages: [{ role: 'user', content: { type: 'text', text: 'What is the capital of France?' } }],
    modelPreferences: {
      hints: [{ name: 'claude-3-sonnet' }],
      intelligencePriority: 0.8,
      speedPriority: 0.5,
    },
    systemPrompt: 'You are a helpful assistant.',
    maxTokens: 100,
  }
  const inputResponses = {
    github_login: { action: 'accept', content: { name: 'octocat' } },
    capital_of_france: {
      role: 'assistant',
      content: { type: 'text', text: 'The capital of France is Paris.' },
      model: 'claude-3-sonnet-20240307',
      stopReason: 'endTurn',
    },
  }

  it("A1 A2 match the proposal: a form and a sampling request under the server's keys, bare results under the same keys", async () => {
    const both = (): Server => {
      const server = createServer({ name: 'both', version: '1.0.0', ...options })
      server.tool('both', {}, async (_args, ctx) => {
        const [login, answer] = await Promise.all([
          ctx.ask('github_login', {
            message: 'Please provide your GitHub username',
            schema: z.object({ name: z.string() }),
          }),
          ctx.sample('capital_of_france', capital),
        ])
        return JSON.stringify({ login, answer })
      })
      return server
    }
    const asked = await postDraft(both(), call(1, 'both', {}))
    const { inputRequests } = asked.message.result as { inputRequests: object }
    expect(inputRequests).toEqual({
      ...githubLogin,
      capital_of_france: { method: 'sampling/createMessage', params: capital },
    })
    const requestState = stateOf(asked.message)
    const { message } = await postDraft(both(), call(2, 'both', {}, { inputResponses, requestState }))
    const [{ text } = { text: '' }] = (message.result as { content: { text: string }[] }).content
    expect(JSON.parse(text)).toEqual({
      login: { name: 'octocat' },
      answer: inputResponses.capital_of_france,
    })
  })
})

describe('update_work_item', () => {
  const update = (id: number, more: object = {}) =>
    call(id, 'update_work_item', { workItemId: 4522, fields: { 'System.State': 'Resolved' } }, more)
  const resolution = {
    resolution: {
      method: 'elicitation/create',
      params: {
        mode: 'form',
        message: 'Resolving Bug #4522 requires a resolution. How was this bug resolved?',
        requestedSchema: {
          type: 'object',
          properties: {
            resolution: {
              type: 'string',
              enum: ['Fixed', "Won't Fix", 'Duplicate', 'By Design'],
              description: 'Resolution type for this bug',
            },
          },
          required: ['resolution'],
        },
      },
    },
  }
  const duplicateOf = {
    duplicate_of: {
      method: 'elicitation/create',
      params: {
        mode: 'form',
        message: 'Since this is a duplicate, which work item is the original?',
        requestedSchema: {
          type: 'object',
          properties: { duplicateOfId: { type: 'number', description: 'Work item ID of the original bug' } },
          required: ['duplicateOfId'],
        },
      },
    },
  }

  it.each([
    ['with the state of the first round', true],
    ['as printed, without a state in the second request', false],
  ])('B21 A4 takes three rounds over three instances, %s', async (_, echoes) => {
    const items = new Map<number, WorkItem>()
    const instance = (): Server => workItems(items, options)
    const first = await postDraft(instance(), update(1))
    expect(first.message).toMatchObject({ id: 1, result: { resultType: 'input_required' } })
    expect((first.message.result as { inputRequests: object }).inputRequests).toEqual(resolution)

    const second = await postDraft(
      instance(),
      update(2, {
        inputResponses: { resolution: { action: 'accept', content: { resolution: 'Duplicate' } } },
        ...(echoes ? { requestState: stateOf(first.message) } : {}),
      }),
    )
    expect(second.message).toEqual({
      jsonrpc: '2.0',
      id: 2,
      result: { resultType: 'input_required', inputRequests: duplicateOf, requestState: expect.any(String) },
    })

    const third = await postDraft(
      instance(),
      update(3, {
        inputResponses: { duplicate_of: { action: 'accept', content: { duplicateOfId: 4301 } } },
        requestState: stateOf(second.message),
      }),
    )
    const text =
      'Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created.'
    expect(third.message).toEqual({
      jsonrpc: '2.0',
      id: 3,
      result: { resultType: 'complete', content: [{ type: 'text', text }] },
    })
    expect(items.get(4522)).toEqual({ state: 'Resolved', resolution: 'Duplicate', duplicateOf: 4301 })
  })
})
