/** A new release takes over a call while two of its questions are open, under every carrier. */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { createBench, decline, type ScriptedAnswer } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { toResponse } from '../../packages/rondo/src/testing/call.ts'
import { connectOlder } from '../support/older-client.ts'
import { connectTurns, type Message } from '../support/turns-client.ts'

const URL = 'http://127.0.0.1/mcp'
const KEYS = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const value = z.object({ value: z.string() })

interface Upgrade {
  readonly name: string
  /** The first question of each release, if it has one. */
  readonly first: readonly [string | undefined, string | undefined]
  readonly asked: readonly string[]
}

const UPGRADES: readonly Upgrade[] = [
  {
    name: 'asks something before them',
    first: [undefined, 'First?'],
    asked: ['Name?', 'Sure?', 'Team?', 'First?'],
  },
  {
    name: 'rewords an earlier question',
    first: ['First?', 'First, please?'],
    asked: ['First?', 'Name?', 'Sure?', 'Team?', 'First, please?'],
  },
]

const ANSWERS: Readonly<Record<string, ScriptedAnswer>> = {
  'First?': { value: 'f' },
  'First, please?': { value: 'f' },
  'Name?': decline,
  'Sure?': { confirm: true },
  'Team?': { value: 'red' },
}

/** One call, the release that serves it, and what its user was asked. */
class World {
  readonly asked: string[] = []
  readonly effects: string[] = []
  release: 0 | 1
  readonly upgrade: Upgrade

  constructor(upgrade: Upgrade, release: 0 | 1 = 0) {
    this.upgrade = upgrade
    this.release = release
  }

  /** The release changes while the user thinks about this question. */
  answer(request: { readonly method: string; readonly params: { readonly message?: unknown } }): Message {
    const message = String(request.params.message)
    this.asked.push(message)
    if (message === 'Name?') this.release = 1
    return toResponse(request as never, ANSWERS[message] ?? {}) as Message
  }

  declare(server: Server, task?: 'auto'): Server {
    server.tool('save', { task }, async (_args, ctx) => {
      const message = this.upgrade.first[this.release]
      const first =
        message === undefined ? 'none' : (await ctx.ask('first', { message, schema: value })).value
      const [{ action }, sure, team] = await Promise.all([
        ctx.elicit('name', { message: 'Name?', schema: value }),
        ctx.confirm('sure', 'Sure?'),
        ctx.ask('team', { message: 'Team?', schema: value }),
      ])
      if (sure) await ctx.effect('save', ({ key }) => void this.effects.push(key))
      return `${first} ${action} ${sure} ${team.value}`
    })
    return server
  }

  create(options: Partial<ServerOptions>, task?: 'auto'): Server {
    const own = { name: 'upgrade', version: '1.0.0', keys: KEYS, log: 'off', dev: true } as const
    const randomId = () => 'the-same-for-every-flow'
    return this.declare(createServer({ ...own, ...options, randomId }), task)
  }
}

type Answerable = Parameters<World['answer']>[0]

/** Each carrier drives one call to its end and returns the text of the result. */
const CARRIERS: readonly (readonly [string, (world: World) => Promise<string>])[] = [
  [
    'a token',
    async (world) => {
      const call = createBench((options) => world.create(options), { store: false }).tool('save')
      let round = await call.next()
      while (round.kind === 'input_required' && call.rounds < 9) {
        const answers = Object.entries(round.questions).map(
          ([key, request]) => [key, () => world.answer(request as Answerable)] as const,
        )
        const script = Object.fromEntries(answers.map(([key, answer]) => [key, contentOf(answer())]))
        round = await call.otherInstance().next(script)
      }
      return round.kind === 'complete' ? round.text : JSON.stringify(round)
    },
  ],
  [
    'a task',
    async (world) => {
      const task = createBench((options) => world.create(options, 'auto')).task('save')
      let round = await task.next()
      for (let i = 0; round.kind === 'input_required' && i < 9; i++) {
        const script = Object.fromEntries(
          Object.entries(round.questions).map(([key, request]) => [
            key,
            contentOf(world.answer(request as Answerable)),
          ]),
        )
        round = await (await task.restart()).next(script)
      }
      return round.kind === 'complete' ? round.text : JSON.stringify(round)
    },
  ],
  [
    'a push',
    async (world) => {
      const server = world.create({})
      const capabilities = { elicitation: { form: {} } }
      const answer = (request: object) => world.answer(request as Answerable)
      const { url } = await server.listen({ port: 0, signals: false })
      const client = await connectOlder(url, { capabilities, answer })
      const { result } = await client.call('tools/call', { name: 'save', arguments: {} })
      await server.close()
      return textOf(result)
    },
  ],
  [
    'turns',
    async (world) => {
      const client = await connectTurns((request) => world.create({}).fetch(request), URL)
      let got = await client.request('tools/call', { name: 'save', arguments: {} })
      for (let i = 0; got.kind === 'turn' && i < 9; i++) {
        const answers = got.requests.map((request) =>
          request.method === 'ping' ? {} : world.answer(request as unknown as Answerable),
        )
        got = await client.answer(got, answers)
      }
      return got.kind === 'response' ? textOf(got.message.result ?? got) : JSON.stringify(got)
    },
  ],
]

/** The bench makes an accept of a content. */
function contentOf(response: Message): ScriptedAnswer {
  return (response.action === 'accept' ? response.content : decline) as ScriptedAnswer
}

function textOf(result: unknown): string {
  return (result as { content?: { text: string }[] }).content?.[0]?.text ?? JSON.stringify(result)
}

describe.each(UPGRADES)('a release that $name', (upgrade) => {
  it.each(CARRIERS)('N4 B13 B19 keeps the answers given to the last one, in %s', async (_name, run) => {
    const world = new World(upgrade)
    expect(await run(world)).toBe('f decline true red')
    expect(world.asked).toEqual(upgrade.asked)
  })

  it('R7 R10 has the effect key of a call that began in the new release, under every carrier', async () => {
    const keys = new Set<string | undefined>()
    for (const [, run] of CARRIERS) {
      for (const world of [new World(upgrade), new World(upgrade, 1)]) {
        await run(world)
        expect(world.effects).toHaveLength(1)
        keys.add(world.effects[0])
      }
    }
    expect(keys.size).toBe(1)
  })
})
