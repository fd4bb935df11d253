/** Effects that can be undone, in callbacks of an official server: a worker has to find the tool, so it needs the option `task`. */

import { ToolError } from 'rondo'
import type { Rondo } from 'rondo/sdk'
import { createBench, type TestBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { mountedServer } from '../support/sdk-bench.ts'

type Ctx = Parameters<Parameters<Rondo['tool']>[0]>[1]

function hotel(task: 'auto' | undefined): { bench: TestBench; calls: string[] } {
  const calls: string[] = []
  const handler = async (ctx: Ctx) => {
    await ctx.effect('room', () => void calls.push('reserve'), { undo: () => void calls.push('release') })
    if (!(await ctx.confirm('ok', 'Book?'))) throw new ToolError('Not booked.')
    return { content: [{ type: 'text' as const, text: 'Booked.' }] }
  }
  let callback: ReturnType<Rondo['tool']> | undefined
  const bench = createBench((options) =>
    mountedServer({ ...options, audience: 'hotel' }, (server, rondo) => {
      if (task) rondo.tasks(server)
      callback ??= rondo.tool((_args, ctx) => handler(ctx), task && { task })
      server.registerTool('trip', {}, callback as never)
    }),
  )
  return { bench, calls }
}

it('M1 a callback without the option "task" is refused before its effect begins, and told what to do', async () => {
  const { bench, calls } = hotel(undefined)
  const trip = bench.tool('trip')
  let round = await trip.next()
  if (round.kind === 'input_required') round = await trip.next()
  expect(JSON.stringify(round)).toContain('give rondo.tool the option')
  expect(calls).toEqual([])
})

it('M1 a callback with the option "task" is undone after a No in rounds, and by a worker if it is left alone', async () => {
  const { bench, calls } = hotel('auto')
  const no = await bench.tool('trip').run({ ok: { confirm: false } })
  expect(JSON.stringify(no)).toContain('Undone: room.')
  expect(calls.splice(0)).toEqual(['reserve', 'release'])
  const trip = bench.tool('trip')
  let round = await trip.next()
  while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
  expect(calls).toEqual(['reserve'])
  await bench.advance('25 hours')
  await expect.poll(() => calls).toEqual(['reserve', 'release'])
})
