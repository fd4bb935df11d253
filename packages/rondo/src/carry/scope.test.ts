import { describe, expect, it } from 'vitest'
import type { Call, FlowCall } from '../protocol/call.ts'
import { createTaskId } from '../store/task-engine.ts'
import type { RequiredScopes, Target } from '../tool/target.ts'
import { needOf, needOfTarget, noteScopes, scopesOfTask, union, withNeed } from './scope.ts'

type Offered = Parameters<typeof needOf>[0]

/** Targets that need the scopes which their name and the arguments say. */
const offered: Offered = {
  find: (method, target) => {
    if (target === 'open') return { name: target } as Target
    if (target === 'gone') return undefined
    const scopes = (args: object): RequiredScopes =>
      'bad' in args
        ? { kind: 'refused', problem: 'bad is unknown' }
        : { kind: 'scopes', scopes: [`${method}:${target}`, ...Object.keys(args)] }
    return { name: target, scopes } as unknown as Target
  },
  completionScopes: async (_ref, known) => ({ kind: 'scopes', scopes: Object.values(known).map(String) }),
}
const need = (call: object) => needOf(offered, call as Call)

describe('the scopes of a request', () => {
  it.each<[string, object, readonly string[]]>([
    [
      'a call',
      { kind: 'flow', method: 'tools/call', target: 'pay', args: { write: 1 } },
      ['tools/call:pay', 'write'],
    ],
    ['a call of what needs none', { kind: 'flow', method: 'tools/call', target: 'open', args: {} }, []],
    ['a call of what does not exist', { kind: 'flow', method: 'tools/call', target: 'gone', args: {} }, []],
    ['a request about a task', { kind: 'task', taskId: createTaskId('pay ship') }, ['pay', 'ship']],
    ['a subscription', { kind: 'watch', uri: 'file:a' }, ['resources/read:file:a']],
    [
      'a stream of changes',
      {
        kind: 'listen',
        filter: {
          resourceSubscriptions: ['file:a', 'file:b', 'file:a'],
          taskIds: [createTaskId('pay'), createTaskId('ship pay')],
        },
      },
      ['resources/read:file:a', 'resources/read:file:b', 'pay', 'ship'],
    ],
    ['a stream of nothing', { kind: 'listen', filter: {} }, []],
    [
      'a completion',
      {
        kind: 'complete',
        ref: {},
        argument: { name: 'city', value: 'Rome' },
        context: { land: 'Italy', city: 'Paris' },
      },
      ['Rome', 'Italy'],
    ],
    ['any other request', { kind: 'list', of: 'tools' }, []],
  ])('H2 of %s', async (_name, call, scopes) => {
    const { scopes: found, ...rest } = await need(call)
    expect([...found].sort()).toEqual([...scopes].sort())
    expect(rest).not.toHaveProperty('badArguments')
  })

  it('H2 are unknown if the arguments do not fit, and the call then says so', async () => {
    const call = {
      kind: 'flow',
      method: 'tools/call',
      target: 'pay',
      args: { bad: 1 },
    } as unknown as FlowCall
    const found = await need(call)
    expect(found).toEqual({ scopes: [], badArguments: 'bad is unknown' })
    expect(withNeed(call, found)).toEqual({ ...call, badArguments: 'bad is unknown' })
    expect(withNeed(call, { scopes: [] })).toBe(call)
    const other = { kind: 'list' }
    expect(withNeed(other, found)).toBe(other)
    expect(await needOfTarget(undefined, {})).toEqual({ scopes: [] })
  })

  it('H2 of several needs are named once', () => {
    expect(union([{ scopes: ['a', 'b'] }, { scopes: ['b', 'c'] }])).toEqual({ scopes: ['a', 'b', 'c'] })
  })

  it('H2 are part of the id of a task, and of one that somebody made up only what may stand in a challenge', () => {
    const id = createTaskId(noteScopes({ scopes: ['pay', 'ship'] }))
    expect(scopesOfTask(id)).toEqual(['pay', 'ship'])
    expect(scopesOfTask(createTaskId(noteScopes({ scopes: [] })))).toEqual([])
    expect(scopesOfTask(createTaskId('pay "x" \\ ship'))).toEqual(['pay', 'ship'])
    expect(() => noteScopes({ scopes: ['x'.repeat(5_000)] })).toThrow()
  })
})
