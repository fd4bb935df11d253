/** K1: every client reaches every server, questions included, whatever their revisions and transports. */

import { decline } from 'rondo/testing'
import { describe, expect, it, onTestFinished } from 'vitest'
import { CLIENTS, SERVERS, serveGateway } from './peers.ts'

const tool = (target: string, args: Record<string, unknown> = {}) =>
  ({ method: 'tools/call', target, args }) as const

describe.each(Object.keys(SERVERS))('K1 a gateway before %s', (serverName) => {
  it.each(Object.keys(CLIENTS))(
    'serves %s: a plain call, a form, two questions, a no, three rounds',
    async (clientName) => {
      const upstream = (await SERVERS[serverName]?.()) ?? {}
      const { url } = await serveGateway({ peer: upstream })
      const client = await CLIENTS[clientName]?.(url)
      if (!client) throw new Error('no client')
      onTestFinished(() => client.close())
      expect(await client.run(tool('add', { a: 2, b: 3 }))).toMatchObject({ text: '5', isError: false })
      expect((await client.run(tool('greet'), { who: { name: 'Ada' } })).text).toContain('Ada')
      expect((await client.run(tool('greet'), { who: decline })).text).toMatch(/nobody|declin/i)
      const both = await client.run(tool('parallel'), { left: { value: 'l' }, right: { value: 'r' } })
      expect(both.text).toBe('l and r')
      const three = { first: { value: 'a' }, second: { value: 'b' }, third: { value: 'c' } }
      expect((await client.run(tool('three_rounds', { id: 7 }), three)).text).toContain('a b c')
    },
  )
})
