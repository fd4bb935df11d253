/** The rows that a store holds of a task. */

import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { start } from '../support/published-tasks.ts'
import { follow, send } from '../support/task-client.ts'

describe('tasks at rest', () => {
  it('a reader of the store finds ids, status, keys and times, and no content', async () => {
    const store = createMemoryStore()
    const written: string[] = []
    const spy = <T extends object>(port: T): T =>
      new Proxy(port, {
        get(target, name) {
          const member = Reflect.get(target, name)
          if (typeof member !== 'function') return member
          return (...args: unknown[]) => {
            written.push(
              JSON.stringify(args, (_key, value) => (value instanceof Map ? [...value] : value)) ?? '',
            )
            return member.apply(target, args)
          }
        },
      })
    const server = start({ store: { ...store, tasks: spy(store.tasks) } })
    server.tool(
      'secret',
      { task: 'always', input: z.object({ card: z.string() }) },
      async ({ card }, ctx) => {
        ctx.status('canary-status')
        await ctx.step('look', () => `canary-step ${card}`)
        const { value } = await ctx.ask('word', {
          message: 'canary-question',
          schema: z.object({ value: z.string() }),
        })
        return `canary-result ${value}`
      },
    )
    const { result } = await send(server, 'tools/call', {
      name: 'secret',
      arguments: { card: 'canary-argument' },
    })
    const ended = await follow(server, String(result?.taskId), { word: { value: 'canary-answer' } })
    expect(JSON.stringify(ended)).toContain('canary-result canary-answer')
    const text = written.join('\n')
    expect(text).toContain('"word"')
    expect(text).not.toContain('canary')
  })
})
