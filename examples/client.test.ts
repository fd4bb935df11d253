import { randomBytes } from 'node:crypto'
import { createServer, generateKey } from 'rondo'
import { connect, RondoError } from 'rondo/client'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type WorkItem, workItems } from './08-custom-rules.ts'
import { provider } from './13-or-argument.ts'
import { type Message, type Model, runAgent, scripted } from './agent-loop.ts'
import { resolveBug } from './client-call.ts'
import { askWith, type Drawn, type Typed } from './client-form.ts'
import { connectCarefully } from './client-policy.ts'
import { createBucket } from './client-rounds.ts'
import { begin, proceed } from './client-suspend.ts'

const options = { keys: generateKey('k1'), log: 'off' } as const
const say = (value: string) => ({ action: 'accept', content: { resolution: value } }) as const

describe('calling', () => {
  it('C6 asks a person and returns the result', async () => {
    const items = new Map<number, WorkItem>()
    const asked: string[] = []
    const result = await resolveBug(workItems(items, options), 4522, async (question) => {
      asked.push(question)
      return 'Fixed'
    })
    expect(result.content).toMatchObject([{ text: 'Bug #4522 resolved as Fixed. State set to Resolved.' }])
    expect(asked).toEqual([
      expect.stringMatching(/^memory: asks: .*How was this bug resolved\? \[resolution\]$/),
    ])
    expect(items.get(4522)).toEqual({ state: 'Resolved', resolution: 'Fixed' })
  })

  it('changes nothing if the person cancels', async () => {
    const items = new Map<number, WorkItem>()
    const result = await resolveBug(workItems(items, options), 4522, async () => undefined)
    expect(result.isError).toBe(true)
    expect(items.size).toBe(0)
  })
})

describe('showing a form', () => {
  const typing = (...typed: Typed[]) => {
    const drawn: Drawn[] = []
    const form = askWith(async (shown) => {
      drawn.push(shown)
      return typed[drawn.length - 1] ?? 'cancel'
    })
    return { drawn, answers: { elicitation: { form } } }
  }
  const update = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }

  it('shows the form again with what was wrong, and sends the valid content', async () => {
    const items = new Map<number, WorkItem>()
    const { drawn, answers } = typing({ resolution: 'Gone' }, { resolution: 'Fixed' })
    const client = await connect(workItems(items, options), { answers })
    await client.callTool('update_work_item', update)
    expect(drawn[0]).toMatchObject({ server: 'memory:', fields: [{ name: 'resolution', type: 'choice' }] })
    expect(drawn[1]).toMatchObject({ values: { resolution: 'Gone' }, problems: [{ name: 'resolution' }] })
    expect(items.get(4522)).toEqual({ state: 'Resolved', resolution: 'Fixed' })
  })

  it('tells the server that the person declined', async () => {
    const { answers } = typing('decline')
    const client = await connect(workItems(new Map(), options), { answers })
    expect(await client.callTool('update_work_item', update)).toMatchObject({ isError: true })
  })
})

describe('suspending', () => {
  it('C11 resumes a stored call in another process, at another instance', async () => {
    const items = new Map<number, WorkItem>()
    const stored = new Map<string, string>()
    const shelf = {
      put: async (id: string, sealed: string) => void stored.set(id, sealed),
      get: async (id: string) => stored.get(id) ?? '',
    }
    const key = randomBytes(32)
    const client = () => connect(workItems(items, options))
    const asked = await begin(await client(), shelf, key)
    if (asked.status !== 'asked') throw new Error('The server should ask')
    expect(Object.keys(asked.questions)).toEqual(['resolution'])
    expect([...stored.values()].join()).not.toContain('update_work_item')
    const again = await proceed(await client(), shelf, key, asked.id, { resolution: say('Duplicate') })
    if (again.status !== 'asked') throw new Error('The server should ask again')
    const original = { action: 'accept', content: { duplicateOfId: 4301 } } as const
    const done = await proceed(await client(), shelf, key, asked.id, { duplicate_of: original })
    expect(done).toMatchObject({
      status: 'complete',
      result: { content: [{ text: expect.stringContaining('Duplicate of Bug #4301') }] },
    })
    expect(items.get(4522)).toMatchObject({ resolution: 'Duplicate', duplicateOf: 4301 })
  })
})

describe('policies', () => {
  const asking = (field: string) => {
    const server = createServer({ name: 'shop', version: '1.0.0', ...options })
    const schema = { type: 'object', properties: { [field]: { type: 'string' } }, required: [field] }
    server.tool('ask', { description: 'Asks' }, async (_args, ctx) => {
      await ctx.ask('q', { message: 'Tell me', schema, allowSecretLike: 'to see it refused' })
      return 'thanks'
    })
    server.tool(
      'visit',
      { description: 'Sends away', input: z.object({ url: z.string() }) },
      async ({ url }, ctx) => {
        await ctx.visit('v', { message: 'Look', url })
        return 'seen'
      },
    )
    return server
  }
  const form = () => ({ action: 'accept', content: { colour: 'red' } }) as const

  it('C13 policies pass a harmless question and log it', async () => {
    const lines: string[] = []
    const client = await connectCarefully(asking('colour'), form, (line) => lines.push(line))
    expect((await client.callTool('ask')).content).toMatchObject([{ text: 'thanks' }])
    expect(lines).toEqual(['shop tools/call round 1: q'])
  })

  it('C13 policies refuse a secret in a form, and a link to a host that is not allowed', async () => {
    const client = await connectCarefully(asking('password'), form, () => {})
    await expect(client.callTool('ask')).rejects.toThrowError(RondoError)
    await expect(client.callTool('ask')).rejects.toMatchObject({ code: 'INPUT_REFUSED' })
    const visit = client.callTool('visit', { url: 'https://evil.test/' })
    await expect(visit).rejects.toMatchObject({ code: 'INPUT_REFUSED' })
  })
})

describe('rounds driven by the caller', () => {
  it('C10 client.round sends the state and the responses unchanged', async () => {
    // Each round could be another client.
    const result = await createBucket(await connect(provider(options)), 'photos')
    expect(result.content).toMatchObject([{ text: 'Created photos in eu' }])
  })
})

describe('an agent loop', () => {
  const form = () => say('Fixed')
  const agent = (model: Model, items = new Map<number, WorkItem>()) =>
    connect(workItems(items, options), { answers: { elicitation: { form } } }).then((client) =>
      runAgent(client, model, 'Resolve bug 4522', 3),
    )

  it('calls the tool that the model names, has a person answer, and returns what the model says', async () => {
    const items = new Map<number, WorkItem>()
    expect(await agent(scripted, items)).toContain('Bug #4522 resolved as Fixed')
    expect(items.get(4522)).toEqual({ state: 'Resolved', resolution: 'Fixed' })
  })

  it('gives the model no question and no answer, only tools and results', async () => {
    const seen: string[] = []
    await agent(async (messages, tools) => {
      seen.push(JSON.stringify(messages))
      expect(tools.map(({ name }) => name)).toEqual(['update_work_item'])
      return scripted(messages, tools)
    })
    expect(seen.length).toBe(2)
    expect(seen.join()).not.toContain('How was this bug resolved')
  })

  it('lets the model read an error, and stops a model that never ends', async () => {
    let last: readonly Message[] = []
    const said = await agent(async (messages) => {
      last = messages
      return { tool: 'no_such_tool', args: {} }
    })
    expect(last.at(-1)?.content).toMatch(/error/i)
    expect(said).toBe('Stopped after 3 tool calls.')
  })
})
