import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { startOlder } from '../../../../test/support/older-server.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import { inputRequired } from '../tool/target.ts'

const text = (value: string) => ({ content: [{ type: 'text', text: value }] })
const accept = (content: object) => ({ action: 'accept', content })
const value = z.object({ value: z.string() })

describe('a call whose questions are pushed', () => {
  it('F1 sends questions that are asked together at once, and continues when all of them are answered', async () => {
    const { server, connect } = await startOlder()
    let runs = 0
    server.tool('both', {}, async (_args, ctx) => {
      runs += 1
      const [a, b] = await Promise.all([
        ctx.ask('a', { message: 'A?', schema: value }),
        ctx.ask('b', { message: 'B?', schema: value }),
      ])
      return `${a.value}${b.value}`
    })
    const waiting: ((answer: unknown) => void)[] = []
    const client = await connect({
      answer: () =>
        new Promise((resolve) => {
          waiting.push(resolve)
          if (waiting.length < 2) return
          waiting[1]?.(accept({ value: '2' }))
          waiting[0]?.(accept({ value: '1' }))
        }),
    })
    expect((await client.call('tools/call', { name: 'both' })).result).toEqual(text('12'))
    expect(runs).toBe(2)
  })

  it('F1 asks for several choices as typed text if the revision has no form for them', async () => {
    const { server, connect } = await startOlder()
    server.tool('colours', {}, async (_args, ctx) => {
      const schema = z.object({ colours: z.array(z.enum(['r', 'g', 'b'])) })
      const { colours } = await ctx.ask('colours', { message: 'Which?', schema })
      return colours.join('+')
    })
    const client = await connect({ version: '2025-06-18', answer: () => accept({ colours: 'r, g' }) })
    expect((await client.call('tools/call', { name: 'colours' })).result).toEqual(text('r+g'))
    expect(client.asked[0]?.params).toMatchObject({
      requestedSchema: { properties: { colours: { type: 'string' } } },
    })
  })

  it('F1 R7 runs an effect before the first question at once, and only once', async () => {
    const { server, connect, events } = await startOlder()
    const keys: string[] = []
    server.tool('order', {}, async (_args, ctx) => {
      await ctx.effect('reserve', ({ key }) => void keys.push(key))
      await ctx.confirm('sure', 'Sure?')
      return String(ctx.round)
    })
    const client = await connect({ answer: () => accept({ confirm: true }) })
    expect((await client.call('tools/call', { name: 'order' })).result).toEqual(text('2'))
    expect(keys).toHaveLength(1)
    const outcomes = events.flatMap((event) => (event.event === 'round' ? [event.outcome] : []))
    expect(outcomes).toEqual(['input_required', 'complete'])
  })

  it('F1 carries the manual form: answers, a state, and a state alone', async () => {
    const { server, connect } = await startOlder()
    server.tool('manual', {}, (_args, ctx) => {
      if (ctx.requestState === undefined) return inputRequired({ requestState: 'moved' })
      const given = ctx.inputResponses?.name as { content?: { value: string } } | undefined
      if (given) return `${ctx.requestState}: ${given.content?.value}, round ${ctx.round}`
      const params = { mode: 'form', message: 'Name?', requestedSchema: { type: 'object' } } as const
      const inputRequests = { name: { method: 'elicitation/create', params } } as const
      return inputRequired({ inputRequests, requestState: 'asked' })
    })
    const client = await connect({ answer: () => accept({ value: 'Ada' }) })
    const { result } = await client.call('tools/call', { name: 'manual' })
    expect(result).toEqual(text('asked: Ada, round 3'))
    const silent = await connect({ capabilities: {} })
    expect((await silent.call('tools/call', { name: 'manual' })).result).toMatchObject({ isError: true })
  })

  it('R9 ends after limits.maxRounds rounds', async () => {
    const { server, connect } = await startOlder({ limits: { maxRounds: 3 } })
    server.tool('endless', {}, () => inputRequired({ requestState: 'again' }))
    const client = await connect()
    expect((await client.call('tools/call', { name: 'endless' })).error).toMatchObject({ code: -32603 })
  })

  it('R9 refuses more open questions than limits.maxQuestions', async () => {
    const { server, connect } = await startOlder({ limits: { maxQuestions: 1 } })
    server.tool('both', {}, (_args, ctx) =>
      Promise.all(['a', 'b'].map((key) => ctx.ask(key, { message: key, schema: value }))),
    )
    const client = await connect()
    expect((await client.call('tools/call', { name: 'both' })).error).toMatchObject({ code: -32603 })
    expect(client.asked).toEqual([])
  })

  it('R8 drops the handler while it waits: defer runs, catch and finally do not', async () => {
    const { server, connect } = await startOlder()
    const seen: string[] = []
    server.tool('tidy', {}, async (_args, ctx) => {
      ctx.defer(() => void seen.push(`defer ${ctx.round}`))
      try {
        await ctx.ask('a', { message: 'A?', schema: value })
        return 'done'
      } catch {
        seen.push('catch')
        return 'caught'
      } finally {
        seen.push(`finally ${ctx.round}`)
      }
    })
    const client = await connect({ answer: () => accept({ value: '1' }) })
    await client.call('tools/call', { name: 'tidy' })
    expect(seen).toEqual(['defer 1', 'finally 2', 'defer 2'])
  })

  it('refuses invalid arguments, and hides the message of a failing tool', async () => {
    const { server, connect } = await startOlder()
    server.tool('fails', {}, () => {
      throw new Error('a secret')
    })
    const client = await connect()
    const misfit = await client.call('tools/call', { name: 'plain', arguments: { n: 'x' } })
    expect(misfit.result).toMatchObject({ isError: true })
    const failed = await client.call('tools/call', { name: 'fails' })
    expect(failed.result).toEqual({ ...text('fails failed'), isError: true })
  })

  it('F1 refuses a tool that runs only as a task: with a result, or since 2025-11-25 with an error', async () => {
    const { server, connect } = await startOlder({ store: createMemoryStore() })
    server.tool('long', { task: 'always' }, () => 'done')
    const before = await connect({ version: '2025-06-18' })
    expect((await before.call('tools/call', { name: 'long' })).result).toMatchObject({ isError: true })
    const since = await connect()
    expect((await since.call('tools/call', { name: 'long' })).error).toMatchObject({ code: -32601 })
  })

  it('reports in development mode a handler that does not replay', async () => {
    const { server, connect } = await startOlder({ dev: true })
    let runs = 0
    server.tool('fickle', {}, async (_args, ctx) => {
      runs += 1
      return (await ctx.ask(`key ${runs}`, { message: 'A?', schema: value })).value
    })
    const client = await connect()
    const { result } = await client.call('tools/call', { name: 'fickle' })
    expect(JSON.stringify(result)).toContain('behaved differently')
    expect(client.asked).toEqual([])
  })
})
