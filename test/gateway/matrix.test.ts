/**
 * K1: every client reaches every server, questions included, whatever their revisions and transports. The results are the page
 * docs/reference/bridge-matrix.md; `RONDO_UPDATE=1` writes it.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { decline } from 'rondo/testing'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { CLIENTS, type PeerClient, SERVERS, serveGateway } from './peers.ts'

const PAGE = 'docs/reference/bridge-matrix.md'
const tool = (target: string, args: Record<string, unknown> = {}) =>
  ({ method: 'tools/call', target, args }) as const

const IDEA = { role: 'assistant', content: { type: 'text', text: 'tea' }, model: 'm' } as const
const ROOTS = { roots: [{ uri: 'file:///tmp', name: 'tmp' }] } as const

/** What is tried in every cell. Each returns the text of the result. */
const BEHAVIOURS: Readonly<
  Record<string, (client: PeerClient) => Promise<readonly [got: string, wanted: RegExp]>>
> = {
  'plain call': async (client) => [(await client.run(tool('add', { a: 2, b: 3 }))).text, /^5$/],
  form: async (client) => [(await client.run(tool('greet'), { who: { name: 'Ada' } })).text, /^Hello, Ada!$/],
  'a no': async (client) => [(await client.run(tool('greet'), { who: decline })).text, /nobody \(decline\)/],
  'two at once': async (client) => {
    const answers = { left: { value: 'l' }, right: { value: 'r' } }
    return [(await client.run(tool('parallel'), answers)).text, /^l and r$/]
  },
  'three rounds': async (client) => {
    const answers = { first: { value: 'a' }, second: { value: 'b' }, third: { value: 'c' } }
    return [(await client.run(tool('three_rounds', { id: 7 }), answers)).text, /a b c/]
  },
  URL: async (client) => [(await client.run(tool('connect_account'), { visit: {} })).text, /accept/],
  'sampling and roots': async (client) => {
    const { text } = await client.run(tool('ask_model'), { capital: IDEA, roots: ROOTS } as never)
    return [text, /tea.*file:\/\/\/tmp|file:\/\/\/tmp.*tea/]
  },
  prompt: async (client) => {
    const call = { method: 'prompts/get', target: 'brief', args: { topic: 'rain' } } as const
    return [(await client.run(call, { tone: { tone: 'dry' } })).text, /dry/]
  },
  resource: async (client) => {
    const call = { method: 'resources/read', target: 'test://report' } as const
    return [(await client.run(call, { period: { period: 'May' } })).text, /May/]
  },
  error: async (client) => {
    const failed = await client.run(tool('nothing')).catch((error: Error) => ({ text: error.message }))
    return [failed.text, /nothing/]
  },
}

const results = new Map<string, Map<string, string>>()

describe.each(Object.keys(SERVERS))('K1 K4 a gateway before %s', (serverName) => {
  it.each(Object.keys(CLIENTS))('serves %s', async (clientName) => {
    const upstream = (await SERVERS[serverName]?.()) ?? {}
    const { url } = await serveGateway({ peer: upstream })
    const client = await CLIENTS[clientName]?.(url)
    if (!client) throw new Error('no client')
    onTestFinished(() => client.close())
    const row = new Map<string, string>()
    for (const [name, run] of Object.entries(BEHAVIOURS)) {
      const [got, wanted] = await run(client).catch(
        (error: Error) => [`threw: ${error.message}`, /^$/] as const,
      )
      row.set(name, wanted.test(got) ? 'yes' : `no: ${got.slice(0, 160)}`)
    }
    results.set(`${clientName} → ${serverName}`, row)
    expect(Object.fromEntries(row)).toEqual(
      Object.fromEntries(Object.keys(BEHAVIOURS).map((name) => [name, 'yes'])),
    )
  })
})

/** The page, from the results. */
function toPage(): string {
  const names = Object.keys(BEHAVIOURS)
  const rows = [...results].sort(([a], [b]) => (a < b ? -1 : 1))
  return [
    '<!-- reference for operators, at most 100 words -->',
    '',
    '# What the bridge bridges',
    '',
    'Each row is a client and a server with [`rondo bridge`](../guide/bridge.md) or a [gateway](../guide/gateway.md) between them. The official packages 1.32 and 2.4 and Rondo',
    'are on both sides. A test runs every cell and writes the table. Another one calls through a gateway with the command line of the Inspector 2.12, in both eras.',
    '',
    '<!-- matrix -->',
    '',
    `| client → server | ${names.join(' | ')} |`,
    `| --- | ${names.map(() => '---').join(' | ')} |`,
    ...rows.map(([name, row]) => `| ${name} | ${names.map((one) => row.get(one)).join(' | ')} |`),
    '',
    '<!-- /matrix -->',
    '',
  ].join('\n')
}

afterAll(() => {
  // A run of a part has no page.
  if (results.size < Object.keys(SERVERS).length * Object.keys(CLIENTS).length) return
  if (process.env.RONDO_UPDATE) writeFileSync(PAGE, toPage())
  expect(readFileSync(PAGE, 'utf8')).toBe(toPage())
})
