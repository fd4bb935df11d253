import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import { asking, formQuestion, scriptServer } from '../../../../test/support/scripted-server.ts'
import { connect } from './connect.ts'

const question = formQuestion('Which?', 'x')
const yes = { action: 'accept', content: { x: 'y' } } as const

describe('lists', () => {
  const page = (names: string[], nextCursor?: string) => ({
    resultType: 'complete',
    tools: names.map((name) => ({ name, inputSchema: { type: 'object' } })),
    ttlMs: 1_000,
    cacheScope: 'private',
    ...(nextCursor !== undefined && { nextCursor }),
  })

  it('are read to the last page, and an empty cursor is a cursor', async () => {
    const server = scriptServer(page(['a'], ''), page(['b'], 'opaque ü'), page(['c']))
    const client = await connect(server)
    expect((await client.listTools()).map(({ name }) => name)).toEqual(['a', 'b', 'c'])
    expect(server.seen.map(({ params }) => params.cursor)).toEqual([undefined, '', 'opaque ü'])
  })

  it('T22 are not read without end', async () => {
    const circle = await connect(scriptServer(page(['a'], 'x')))
    await expect(circle.listTools()).rejects.toMatchObject({ code: 'LIMIT_CLIENT_PAGES' })
    const server = scriptServer((_seen, turn) => page(['a'], String(turn)))
    const endless = await connect(server, { maxPages: 7 })
    await expect(endless.listTools()).rejects.toMatchObject({ code: 'LIMIT_CLIENT_PAGES' })
    expect(server.seen).toHaveLength(7)
  })

  it('omit tools with invalid header annotations, with a warning', async () => {
    const warnings: string[] = []
    const bad = { name: 'bad', inputSchema: { properties: { a: { type: 'number', 'x-mcp-header': 'A' } } } }
    const list = { ...page(['good']), tools: [bad, ...page(['good']).tools] }
    const client = await connect(scriptServer(list), { onWarning: (text) => warnings.push(text) })
    expect((await client.listTools()).map(({ name }) => name)).toEqual(['good'])
    expect(warnings).toEqual([expect.stringContaining('"bad"')])
  })

  it('A6 may not ask for input', async () => {
    const client = await connect(scriptServer(asking(undefined, 's')))
    await expect(client.listTools()).rejects.toMatchObject({ code: 'PEER_BAD_RESPONSE' })
  })
})

describe('the cache of results', () => {
  const contents = {
    resultType: 'complete',
    contents: [{ uri: 'a:b', text: 'x' }],
    ttlMs: 100,
    cacheScope: 'public',
  }

  it('keeps a result as long as the server allows', async () => {
    const clock = createManualClock()
    const server = scriptServer(contents)
    const client = await connect(server, { clock })
    await client.readResource('a:b')
    clock.advance(99)
    await client.readResource('a:b')
    expect(server.seen).toHaveLength(1)
    await client.readResource('a:b', { fresh: true })
    await client.readResource('a:c')
    expect(server.seen).toHaveLength(3)
    clock.advance(100)
    await client.readResource('a:b')
    expect(server.seen).toHaveLength(4)
  })

  it.each([
    ['without a hint', { resultType: 'complete', contents: [] }, {}],
    ['with a lifetime of zero', { ...contents, ttlMs: 0 }, {}],
    ['if it is switched off', contents, { cache: false }],
  ])('keeps nothing %s', async (_when, result, options) => {
    const server = scriptServer(result)
    const client = await connect(server, options)
    await client.readResource('a:b')
    await client.readResource('a:b')
    expect(server.seen).toHaveLength(2)
  })

  it('never keeps a result that took several rounds', async () => {
    const server = scriptServer(asking({ a: question }), contents, asking(undefined, 's'), contents, contents)
    const client = await connect(server, { answers: { elicitation: () => yes } })
    await client.readResource('a:b')
    await client.readResource('a:b')
    expect(server.seen).toHaveLength(4)
  })

  it('never returns a result of one login to another', async () => {
    let token = 'alice'
    const server = scriptServer({ ...contents, cacheScope: 'private' })
    const client = await connect(server, { headers: () => ({ Authorization: token }) })
    await client.readResource('a:b')
    token = 'bob'
    await client.readResource('a:b')
    expect(server.seen.map(({ headers }) => headers.get('authorization'))).toEqual(['alice', 'bob'])
  })
})
