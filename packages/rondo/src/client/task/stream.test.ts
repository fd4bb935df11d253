import { expect, it, onTestFinished } from 'vitest'
import { generateKey } from '../../seal/key-ring.ts'
import { createServer } from '../../serve/server.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import { connect } from '../connect.ts'

interface Seen {
  readonly method: string
  readonly params: { readonly notifications?: { readonly taskIds?: readonly string[] } }
}

/** A server whose tasks wait until they are released, and a client that it sees every request of. */
async function open() {
  const server = createServer({
    name: 'tasks',
    version: '1.0.0',
    keys: generateKey('test'),
    log: 'off',
    store: createMemoryStore(),
    tasks: { concurrency: 512, maxOpen: 512, pollMs: 60_000 },
  })
  let release = (): void => {}
  const gate = new Promise<void>((resolve) => {
    release = resolve
  })
  server.tool('wait', { task: 'always' }, async (_args, ctx) => {
    await ctx.step('wait', () => gate.then(() => null))
    return 'done'
  })
  const seen: Seen[] = []
  const client = await connect(
    {
      async fetch(request) {
        seen.push((await request.clone().json()) as Seen)
        return server.fetch(request)
      },
    },
    { tasks: true },
  )
  onTestFinished(async () => {
    await client.close()
    await server.close()
  })
  const streams = () =>
    seen.flatMap(({ method, params }) =>
      method === 'subscriptions/listen' ? [params.notifications?.taskIds?.length] : [],
    )
  const begun: Promise<unknown>[] = []
  /** Begins calls that become tasks. */
  const call = (count: number): void => {
    for (let number = 0; number < count; number += 1) begun.push(client.callTool('wait'))
  }
  return { client, seen, streams, begun, call, release }
}

const DONE = { content: [{ type: 'text', text: 'done' }] }

it('E4 follows 200 tasks in a few streams of at most 128, and learns of each end from a notification', async () => {
  const { seen, streams, begun, call, release } = await open()
  call(200)
  // The last two have all of them; earlier ones were replaced.
  await expect.poll(() => streams().slice(-2)).toEqual([128, 72])
  expect(streams().length).toBeLessThan(6)
  release()
  for (const result of await Promise.all(begun)) expect(result).toEqual(DONE)
  expect(seen.filter(({ method }) => method === 'tasks/get')).toEqual([])
})

it('E4 replaces the stream of a task by one that has a later task as well, and loses no notification', async () => {
  const { streams, begun, call, release } = await open()
  call(1)
  await expect.poll(streams).toEqual([1])
  call(1)
  await expect.poll(streams).toEqual([1, 2])
  release()
  expect(await Promise.all(begun)).toEqual([DONE, DONE])
})

it('E4 opens another stream after the tasks of the first have ended', async () => {
  const { streams, begun, call, release } = await open()
  release()
  for (let number = 1; number <= 2; number += 1) {
    call(1)
    expect(await begun.at(-1)).toEqual(DONE)
  }
  expect(streams()).toEqual([1, 1])
})
