import { generateKey } from 'rondo'
import { createBench, type TestRound } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../packages/rondo/src/store/memory/store.ts'
import { follow, send } from '../test/support/task-client.ts'
import { idIn, roundsHost, untilEnded } from '../test/support/task-tools.ts'
import { travel } from './02-parallel.ts'
import { createProvider, shop } from './03-steps-and-effects.ts'
import { notebook } from './04-prompts-and-resources.ts'
import { calendar, createConnections } from './05-url.ts'
import { releaseOne, releaseTwo } from './06-rolling-upgrade.ts'
import { indexer } from './07-load-shedding.ts'
import { type WorkItem, workItems } from './08-custom-rules.ts'
import { provisioner } from './09-manual.ts'
import { greeter } from './10-valibot.ts'
import { exporter } from './11-arktype.ts'
import { reports } from './12-tasks.ts'
import { dataExports } from './15-task-tools.ts'

function keysOf(round: TestRound): string[] {
  return round.kind === 'input_required' ? Object.keys(round.questions) : []
}

function textOf(round: TestRound): string {
  if (round.kind !== 'complete') throw new Error(`expected a result, got ${JSON.stringify(round)}`)
  return round.text
}

describe('02 parallel questions', () => {
  it('sends both questions in one round', async () => {
    const call = createBench(travel).tool('plan_trip')
    expect(keysOf(await call.next())).toEqual(['from', 'to'])
    expect(keysOf(await call.next({ from: { city: 'Bonn' }, to: { city: 'Ulm' } }))).toEqual(['book'])
    expect(textOf(await call.next({ book: { confirm: true } }))).toBe('Booked: Bonn to Ulm.')
  })
})

describe('03 steps and effects', () => {
  it('charges once, although the reply was lost', async () => {
    const provider = createProvider()
    const call = createBench((options) => shop(provider, options)).tool('buy', { item: 'tea' })
    await call.next()
    await call.loseReply({ pay: { confirm: true } })
    const done = await call.otherInstance().next({ pay: { confirm: true } })
    expect(textOf(done)).toBe('Bought tea for 30 cents, receipt r-1.')
    expect(provider.charges.size).toBe(1)
  })
})

describe('04 prompts and resources that ask', () => {
  it('asks in a prompt', async () => {
    const done = await createBench(notebook)
      .prompt('summarise', { day: 'monday' })
      .run({ tone: { tone: 'terse' } })
    expect(textOf(done)).toBe('Summarise in a terse tone: Buy milk')
  })

  it('asks before it returns a resource', async () => {
    const bench = createBench(notebook)
    const done = await bench.resource('notes://tuesday/text').run({ read: { confirm: true } })
    expect(textOf(done)).toBe('Call Ada')
    expect(textOf(await bench.resource('notes://all').run())).toContain('Buy milk')
  })
})

describe('05 URL mode', () => {
  const begin = async (subject: string) => {
    const connections = createConnections()
    const bench = createBench((options) => calendar(connections, options))
    const call = bench.tool('next_meeting', {}, { principal: { subject } })
    const asked = await call.next()
    const params = asked.kind === 'input_required' ? asked.questions.connect?.params : undefined
    const { mode, url } = params as { mode?: string; url: string }
    return { call, connections, mode, link: url.replace('https://calendar.example/connect/', '') }
  }

  it('continues once the account is connected', async () => {
    const { call, connections, mode, link } = await begin('ada')
    expect(mode).toBe('url')
    expect(connections.open(link, 'ada')).toBe(true)
    expect(textOf(await call.next({ connect: {} }))).toBe('Your next meeting is at ten.')
  })

  it('does not treat consent to open the page as completion', async () => {
    const { call } = await begin('bob')
    expect(await call.next({ connect: {} })).toMatchObject({ result: { isError: true } })
  })

  it('T4 refuses a link that belongs to another user, and accepts each link once', async () => {
    const { call, connections, link } = await begin('ada')
    expect(link).not.toContain('ada')
    expect(connections.open(link, 'mallory')).toBe(false)
    expect([connections.has('ada'), connections.has('mallory')]).toEqual([false, false])
    expect(connections.open(link, 'ada')).toBe(true)
    expect(connections.open(link, 'ada')).toBe(false)
    expect(textOf(await call.next({ connect: {} }))).toBe('Your next meeting is at ten.')
  })
})

describe('06 rolling upgrade', () => {
  it('B19 keeps the answer that it still needs, ignores the other, and asks only what is new', async () => {
    let make = releaseOne
    const call = createBench((options) => make(options)).tool('link_accounts')
    expect(keysOf(await call.next())).toEqual(['github_login', 'google_login'])
    make = releaseTwo
    const second = await call
      .otherInstance()
      .next({ github_login: { name: 'octocat' }, google_login: { name: 'g' } })
    expect(keysOf(second)).toEqual(['microsoft_login'])
    expect(textOf(await call.otherInstance().next({ microsoft_login: { name: 'm' } }))).toBe(
      'Linked octocat and m.',
    )
  })
})

describe('07 load shedding', () => {
  it('B20 hands its work over as a state alone, and the next instance does not repeat it', async () => {
    const ran: string[] = []
    let instances = 0
    const bench = createBench((options) => {
      instances += 1
      const name = `instance ${instances}`
      const work = async (shard: number) => {
        ran.push(`${name} shard ${shard}`)
        return 10
      }
      const busy = instances === 1
      return indexer(work, { ...options, shed: () => busy && ran.length >= 2 })
    })
    const call = bench.tool('index', { shards: 3 })
    const shed = await call.next()
    expect(shed).toMatchObject({ kind: 'input_required', questions: {}, state: expect.any(String) })
    expect(textOf(await call.otherInstance().next())).toBe('Indexed 30 documents.')
    expect(ran).toEqual(['instance 1 shard 0', 'instance 1 shard 1', 'instance 2 shard 2'])
  })
})

describe('08 custom rules', () => {
  it('B21 asks for the resolution, then for the original, over three instances', async () => {
    const items = new Map<number, WorkItem>()
    const bench = createBench((options) => workItems(items, options))
    const call = bench.tool('update_work_item', { workItemId: 4522, fields: { 'System.State': 'Resolved' } })
    expect(await call.next()).toEqual({
      kind: 'input_required',
      state: expect.any(String),
      questions: {
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
      },
    })
    expect(await call.otherInstance().next({ resolution: { resolution: 'Duplicate' } })).toEqual({
      kind: 'input_required',
      state: expect.any(String),
      questions: {
        duplicate_of: {
          method: 'elicitation/create',
          params: {
            mode: 'form',
            message: 'Since this is a duplicate, which work item is the original?',
            requestedSchema: {
              type: 'object',
              properties: {
                duplicateOfId: { type: 'number', description: 'Work item ID of the original bug' },
              },
              required: ['duplicateOfId'],
            },
          },
        },
      },
    })
    expect(textOf(await call.otherInstance().next({ duplicate_of: { duplicateOfId: 4301 } }))).toBe(
      'Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created.',
    )
    expect(items.get(4522)).toEqual({ state: 'Resolved', resolution: 'Duplicate', duplicateOf: 4301 })
  })
})

describe('09 manual form', () => {
  it('seals the state of a manual handler', async () => {
    const call = createBench(provisioner).tool('provision')
    const asked = await call.next()
    expect(asked).toMatchObject({ state: expect.stringMatching(/^r1\./) })
    expect(textOf(await call.otherInstance().next({ region: { region: 'eu' } }))).toBe('Provisioned in eu.')
  })

  it('ignores a response that came before its question', async () => {
    expect(
      keysOf(
        await createBench(provisioner)
          .tool('provision')
          .next({ region: { region: 'eu' } }),
      ),
    ).toEqual(['region'])
  })
})

describe('a server with valibot (10) or arktype (11)', () => {
  it('accepts valibot schemas for arguments and questions', async () => {
    expect(
      textOf(
        await createBench(greeter)
          .tool('greet')
          .run({ who: { name: 'Ada' } }),
      ),
    ).toBe('Hello, Ada!')
  })

  it('accepts arktype schemas for arguments, questions and results', async () => {
    const call = createBench(exporter).tool('export_table', { table: 'users' })
    await call.next()
    expect(keysOf(await call.next({ limit: { rows: 5000 } }))).toEqual(['limit'])
    expect(await call.next({ limit: { rows: 50 } })).toMatchObject({
      result: { structuredContent: { table: 'users', rows: 50 } },
    })
    expect(await createBench(exporter).tool('export_table', { table: 'secrets' }).next()).toMatchObject({
      result: { isError: true },
    })
  })
})

describe('12 tasks', () => {
  it('runs in rounds for a client that does not support tasks', async () => {
    const done = await createBench(reports)
      .tool('report', { year: 2026 })
      .run({ format: { format: 'pdf' }, sure: { confirm: true } })
    expect(textOf(done)).toBe('Published the pdf report of 2026.')
  })

  it('continues as a task for a client that supports tasks', async () => {
    const server = reports({ store: createMemoryStore(), keys: generateKey(), log: 'off' })
    const first = await send(server, 'tools/call', { name: 'report', arguments: { year: 2026 } })
    const second = await send(server, 'tools/call', {
      name: 'report',
      arguments: { year: 2026 },
      requestState: first.result?.requestState,
      inputResponses: { format: { action: 'accept', content: { format: 'csv' } } },
    })
    const ended = await follow(server, String(second.result?.taskId), { sure: { confirm: true } })
    expect(ended).toMatchObject({ result: { content: [{ text: 'Published the csv report of 2026.' }] } })
    await server.close()
  })
})

describe('15-task-tools', () => {
  it('runs as a task for a host without tasks, and task_status asks its user', async () => {
    const server = dataExports({ store: createMemoryStore(), keys: generateKey(), log: 'off' })
    const host = roundsHost(server)
    const started = await host.call('export', { year: 2026 })
    expect(started.text).toContain('Call task_status')
    const script = { sure: { confirm: true } }
    expect(await untilEnded(host, idIn(started), script)).toMatchObject({
      text: 'Exported 40000 rows of 2026.',
    })
    await server.close()
  })
})
