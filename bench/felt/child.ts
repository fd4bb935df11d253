/** A server in a process of its own: `child.js ADDRESS`, with no store without one. Reports its address, and its CPU time when asked. */

import { setTimeout as sleep } from 'node:timers/promises'
import { createServer } from 'rondo'
import { openBuiltStore } from '../task/built-store.ts'
import type { StoreAddress } from '../task/subject.ts'
import { Answer, DESCRIPTION, Input, questionFor, resultFor, SECRET } from '../work.ts'

export const WORK_MS = 100

export interface Listening {
  readonly kind: 'listening'
  readonly url: string
}

export interface Used {
  readonly kind: 'used'
  readonly micros: number
}

const address = JSON.parse(process.argv[2] ?? 'null') as StoreAddress | null
const tell = (message: Listening | Used): void => void process.send?.(message)

const server = createServer({
  name: 'felt',
  version: '1.0.0',
  keys: `bench:${SECRET}`,
  log: 'off',
  ...(address && {
    store: openBuiltStore(address),
    tasks: { maxOpen: Number.POSITIVE_INFINITY, concurrency: 256 },
  }),
})
const describe = { description: DESCRIPTION, input: Input }
server.tool('plain', describe, ({ id }) => resultFor(id, 'Fixed'))
server.tool('ask', describe, async ({ id }, ctx) => {
  const { resolution } = await ctx.ask('resolution', { message: questionFor(id), schema: Answer })
  return resultFor(id, resolution)
})
if (address) {
  const always = { ...describe, task: 'always' } as const
  server.tool('step', always, async ({ id }, ctx) => ctx.step('work', () => resultFor(id, 'Fixed')))
  server.tool('park', always, async ({ id }, ctx) => {
    const { resolution } = await ctx.ask('resolution', { message: questionFor(id), schema: Answer })
    return resultFor(id, resolution)
  })
  server.tool('wait', always, async ({ id }, ctx) => {
    await ctx.step('work', () => sleep(WORK_MS, null))
    return resultFor(id, 'Fixed')
  })
  server.tool('pay', always, async ({ id }, ctx) => {
    await ctx.effect('work', () => sleep(WORK_MS, null))
    return resultFor(id, 'Fixed')
  })
}

process.on('message', () => {
  const { user, system } = process.cpuUsage()
  tell({ kind: 'used', micros: user + system })
})
process.on('disconnect', () => process.exit())
const { url } = await server.listen({ port: 0, signals: false })
tell({ kind: 'listening', url })
