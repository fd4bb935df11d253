import { createServer, generateKey, type ServerOptions } from 'rondo'
import type { Store } from 'rondo/store'
import { describe, expect, it, onTestFinished } from 'vitest'
import { connectOlder, type Message, type OpenStream } from '../../../../test/support/older-client.ts'
import { createMemoryStore } from '../store/memory/store.ts'

const YES = { action: 'accept', content: { confirm: true } }
const BOOK = { jsonrpc: '2.0', id: 'book', method: 'tools/call', params: { name: 'book' } }

/** Two instances, the second with a store of its own making, and a client whose requests go to the one that was chosen last. */
async function start(tool: object, second: (store: Store) => Store = (store) => store) {
  const store = createMemoryStore()
  const keys = generateKey()
  const happened: string[] = []
  const servers = [store, second(store)].map((own) => {
    const options: ServerOptions = { name: 'hotel', version: '1', keys, log: 'off', store: own, sessions: {} }
    const server = createServer(options)
    server.tool('book', tool, async (_args, ctx) => {
      const undo = (): void => void happened.push('undo')
      await ctx.effect('room', () => void happened.push('room'), { undo })
      return (await ctx.confirm('sure', 'Sure?')) ? 'Booked.' : 'Not booked.'
    })
    onTestFinished(() => server.close())
    return server
  })
  let chosen = 0
  const send = async (request: Request): Promise<Response> =>
    (await servers[chosen]?.fetch(request)) ?? new Response()
  const options = { capabilities: { elicitation: { form: {} } } }
  const client = await connectOlder('http://127.0.0.1/mcp', options, send)
  const stream = await client.post(BOOK)
  const question = await next(stream)
  const choose = (index: number): void => {
    chosen = index
  }
  /** Resumes the stream of the call after the question. */
  const resume = (): Promise<OpenStream> => client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
  return { client, stream, question, happened, choose, resume }
}

async function next(stream: OpenStream): Promise<Message> {
  const message = await stream.next()
  if (message) return message
  throw new Error('the stream ended')
}

const BOOKED = { result: { content: [{ text: 'Booked.' }] } }

describe('a call that waits, on two instances', () => {
  it('J1 M1 R7 is not undone by the instance that loses it to another', async () => {
    const { client, question, happened, choose, resume } = await start({})
    choose(1)
    const stream = await resume()
    await client.respond(question.id, YES)
    expect(await next(stream)).toMatchObject(BOOKED)
    expect(happened).toEqual(['room'])
  })

  it('J1 M3 keeps its permit when another instance continues it', async () => {
    const { client, question, choose, resume } = await start({
      concurrency: { key: () => 'all', limit: 1 },
    })
    choose(1)
    const stream = await resume()
    const other = await client.call('tools/call', { name: 'book' })
    expect(other).not.toMatchObject(BOOKED)
    await client.respond(question.id, YES)
    expect(await next(stream)).toMatchObject(BOOKED)
  })

  it('J1 R2 learns of an answer whose first request failed after the answer was stored', async () => {
    let failures = 1
    const flaky = (store: Store): Store => ({
      ...store,
      bus: store.bus && {
        ...store.bus,
        publish: async (message) => {
          if (failures-- > 0) throw new Error('away')
          await store.bus?.publish(message)
        },
      },
    })
    const { client, stream, question, choose } = await start({}, flaky)
    choose(1)
    expect((await client.respond(question.id, YES)).status).not.toBe(202)
    expect((await client.respond(question.id, YES)).status).toBe(202)
    expect(await next(stream)).toMatchObject(BOOKED)
  })
})
