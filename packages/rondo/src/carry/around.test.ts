import { describe, expect, it } from 'vitest'
import { RondoError, ToolError } from '../errors.ts'
import type { Call } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import {
  AS_REPLY,
  aroundRequest,
  type CallFacts,
  type CallReply,
  type CallStep,
  PENDING,
  runAround,
} from './around.ts'

const done: Reply = { kind: 'complete', result: { content: [] } }
const other: Reply = { kind: 'complete', result: { other: true } }
const step = (run: CallStep['run'], name = 'audit'): CallStep => ({ name, run })
const facts = (more: Partial<CallFacts> = {}): CallFacts => ({
  kind: 'request',
  method: 'tools/call',
  args: {},
  continues: false,
  protocolVersion: '2026-07-28',
  ...more,
})

/** Runs a call inside steps; `ran` counts how often the call itself ran. */
async function run(
  steps: readonly CallStep[],
  more?: Partial<CallFacts>,
  call = async (): Promise<Reply> => done,
  ms?: number,
) {
  let ran = 0
  const ending = await runAround(
    steps,
    facts(more),
    () => {
      ran += 1
      return call()
    },
    AS_REPLY as { toReply: (reply: Reply) => CallReply; fromReply: (reply: Reply) => Reply },
    ms,
  ).catch((error: unknown) => ({ thrown: error }))
  return { ending, ran }
}

const fault = (text: string) => ({
  thrown: expect.objectContaining({ message: expect.stringContaining(text) }),
})

describe('a call inside steps', () => {
  it('runs inside the first step, the last one nearest to it', async () => {
    const order: string[] = []
    const named = (name: string) =>
      step(async (_call, next) => {
        order.push(`${name} begins`)
        const reply = await next()
        order.push(`${name} ends`)
        return reply
      })
    expect(await run([named('a'), named('b')])).toEqual({ ending: done, ran: 1 })
    expect(order).toEqual(['a begins', 'b begins', 'b ends', 'a ends'])
  })

  it('around 1: runs at most once, and not if no step calls it', async () => {
    const twice = step(async (_call, next) => {
      await next()
      return next()
    })
    expect(await run([twice, twice])).toEqual({ ending: done, ran: 1 })
    expect(await run([step(async () => other)])).toEqual({ ending: other, ran: 0 })
  })

  it('around 1: never runs after the steps have replied', async () => {
    let late: Promise<CallReply> | undefined
    let leave = (): void => {}
    const left = new Promise<void>((resolve) => {
      leave = resolve
    })
    const { ran } = await run([
      step(async (_call, next) => {
        late = left.then(next)
        return other
      }),
    ])
    leave()
    await expect(late).rejects.toThrow('after it had replied')
    expect(ran).toBe(0)
  })

  it('may be replied to by a step in place of its own reply', async () => {
    const replace = step(async (_call, next) => {
      await next()
      return other
    })
    expect(await run([replace])).toEqual({ ending: other, ran: 1 })
  })

  it.each<[string, unknown, Partial<CallFacts>, object]>([
    [
      'a RondoError',
      new RondoError('PEER_PARAMS', 'No'),
      {},
      { kind: 'error', error: { code: 'PEER_PARAMS' } },
    ],
    [
      'a ToolError of a tool',
      new ToolError('No'),
      {},
      { kind: 'complete', result: { isError: true, content: [{ text: 'No' }] } },
    ],
    [
      'a ToolError of a prompt',
      new ToolError('No'),
      { method: 'prompts/get' },
      { kind: 'error', error: { code: 'SERVER_HANDLER' } },
    ],
    ['another error', new Error('odd'), {}, { thrown: { message: 'odd' } }],
    ['an error that is never sent', new RondoError('LIMIT_DEFER'), {}, { thrown: { code: 'LIMIT_DEFER' } }],
    [
      'a failure of the store, in a request',
      new RondoError('STORE_BUSY'),
      {},
      { kind: 'error', error: { code: 'STORE_BUSY' } },
    ],
    [
      'a failure of the store, in a turn',
      new RondoError('STORE_BUSY'),
      { kind: 'turn' },
      { thrown: { code: 'STORE_BUSY' } },
    ],
    [
      'a RondoError, in a turn',
      new RondoError('PEER_PARAMS'),
      { kind: 'turn' },
      { kind: 'error', error: { code: 'PEER_PARAMS' } },
    ],
  ])('around 2: a step replies with what it throws, or fails: %s', async (_name, error, more, ending) => {
    const throws = step(async () => {
      throw error
    })
    expect((await run([throws], more)).ending).toMatchObject(ending)
  })

  it('around 3: passes an error of its own through unchanged', async () => {
    for (const error of [new RondoError('PEER_PARAMS'), new ToolError('No'), new Error('odd')]) {
      const { ending } = await run([step((_call, next) => next())], {}, () => Promise.reject(error))
      expect(ending).toEqual({ thrown: error })
    }
  })

  it('around 2: a step replies with what it throws in place of an error of the call', async () => {
    const replaces = step(async (_call, next) => {
      await next().catch(() => {})
      throw new ToolError('No')
    })
    const { ending } = await run([replaces], {}, () => Promise.reject(new Error('odd')))
    expect(ending).toMatchObject({ kind: 'complete', result: { isError: true, content: [{ text: 'No' }] } })
  })

  it('ends with what it resolved with if its reply comes back, and not with the reply', async () => {
    const ending = { kept: true }
    const form = { toReply: () => done, fromReply: () => ({ kept: false }) }
    const passes = step((_call, next) => next())
    expect(await runAround([passes], facts(), async () => ending, form)).toBe(ending)
  })

  it('leaves no timer behind, even if it outlasts the steps', async () => {
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
    const before = timers()
    let end = (_reply: Reply): void => {}
    const call = () =>
      new Promise<Reply>((resolve) => {
        end = resolve
      })
    const drops = step(async (_call, next) => {
      void next()
      return other
    })
    await run([drops], {}, call)
    end(done)
    await run([step((_call, next) => next())])
    await new Promise((resolve) => setImmediate(resolve))
    expect(timers()).toBeLessThanOrEqual(before)
  })

  it('around 4: fails if a step does not settle, before it calls next or after', async () => {
    const never = new Promise<CallReply>(() => {})
    const before = await run([step(() => never, 'slow')], {}, undefined, 1)
    expect(before).toEqual({ ending: fault('"slow" did not settle within 1 ms'), ran: 0 })
    const after = step(async (_call, next) => {
      await next()
      return never
    }, 'slow')
    expect(await run([after], {}, undefined, 1)).toEqual({ ending: fault('"slow" did not settle'), ran: 1 })
  })

  it('around 5: a turn ends after its call, even if a step does not wait for it, and a request does not wait', async () => {
    for (const kind of ['turn', 'request'] as const) {
      let end = (): void => {}
      const call = () =>
        new Promise<Reply>((resolve) => {
          end = () => resolve(done)
        })
      let over = false
      const running = run(
        [
          step(async (_call, next) => {
            void next()
            return other
          }),
        ],
        { kind },
        call,
      ).then((result) => {
        over = true
        return result
      })
      await new Promise((resolve) => setImmediate(resolve))
      expect(over).toBe(kind === 'request')
      end()
      expect((await running).ending).toEqual(other)
    }
  })

  it('R11 survives a step that drops a call which fails', async () => {
    const drops = step(async (_call, next) => {
      void next()
      return other
    })
    for (const kind of ['turn', 'request'] as const)
      expect((await run([drops], { kind }, () => Promise.reject(new Error('odd')))).ending).toEqual(other)
  })

  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['no reply', { content: [] }],
    ['an unknown kind', { kind: 'odd' }],
    ['a result that is none', { kind: 'complete', result: 'done' }],
    ['a list without a result', { kind: 'cacheable' }],
    ['an error that is none', { kind: 'error', error: new Error('odd') }],
  ])('fails if a step returns %s', async (_name, reply) => {
    expect((await run([step(async () => reply as CallReply, 'odd')])).ending).toEqual(
      fault('"odd" returned no reply'),
    )
  })

  it('takes every kind of reply from a step', async () => {
    const replies = ['input_required', 'task_created', 'task', 'tasks', 'task_failed'].map((kind) => ({
      kind,
    }))
    const error = new RondoError('PEER_PARAMS')
    for (const reply of [...replies, { kind: 'cacheable', result: {} }, { kind: 'error', error }])
      expect((await run([step(async () => reply as CallReply)])).ending).toEqual(reply)
    expect((await run([step(async () => PENDING)])).ending).toEqual(fault('"pending" without calling next'))
  })
})

describe('what a step learns of a request', () => {
  const learn = async (call: object): Promise<CallFacts | undefined> => {
    let seen: CallFacts | undefined
    const spy = step(async (given, next) => {
      seen = given
      return next()
    })
    await aroundRequest(
      [spy],
      call as Exclude<Call, { kind: 'listen' }>,
      { subject: 'ada' },
      async () => done,
      AS_REPLY,
    )
    return seen
  }
  const base = { protocolVersion: '2026-07-28', clientInfo: { name: 'c', version: '1' } }
  const known = {
    kind: 'request',
    protocolVersion: '2026-07-28',
    client: base.clientInfo,
    principal: { subject: 'ada' },
  }
  const flow = { ...base, kind: 'flow', method: 'tools/call', target: 'pay', args: { order: 7 } }

  const pay = { method: 'tools/call', target: 'pay', args: { order: 7 } }

  it.each<[string, object, object]>([
    ['a first call', flow, pay],
    ['a call with a state', { ...flow, requestState: 's' }, { ...pay, continues: true }],
    ['a call with answers', { ...flow, inputResponses: {} }, { ...pay, continues: true }],
    [
      'a list',
      { ...base, kind: 'list', listing: 'tools', cursor: 'c' },
      { method: 'tools/list', cursor: 'c' },
    ],
    [
      'a request about a task',
      { ...base, kind: 'task', action: 'get', taskId: 't' },
      { method: 'tasks/get', task: 't' },
    ],
    [
      'answers to a task',
      { ...base, kind: 'task', action: 'update', taskId: 't', inputResponses: {} },
      { method: 'tasks/update', task: 't' },
    ],
    ['a page of tasks', { ...base, kind: 'tasks', cursor: 'c' }, { method: 'tasks/list', cursor: 'c' }],
    [
      'a method of an extension',
      { ...base, kind: 'custom', method: 'x/y', args: { order: 7 } },
      { method: 'x/y', args: { order: 7 } },
    ],
  ])('is who asks for what: %s', async (_name, call, more) => {
    expect(await learn(call)).toEqual({ ...known, args: {}, continues: false, ...more })
  })

  it('costs nothing without steps', async () => {
    const running = Promise.resolve(done)
    expect(
      aroundRequest(
        [],
        flow as unknown as Exclude<Call, { kind: 'listen' }>,
        undefined,
        () => running,
        AS_REPLY,
      ),
    ).toBe(running)
  })
})
