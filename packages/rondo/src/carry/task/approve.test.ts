import { describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { LogEvent } from '../../log/event.ts'
import type { Approver } from '../../tool/approval.ts'
import type { Target } from '../../tool/target.ts'
import type { FlowHost } from '../host.ts'
import { approvalsOf, type TaskApprovals } from './approve.ts'
import type { TaskPlan } from './journal.ts'

type Asked = Parameters<TaskApprovals['open']>[1]
const events: LogEvent[] = []
const asked: unknown[] = []
const approver = {
  open: async (request: unknown) => void asked.push(request),
  use: async (...given: unknown[]) => ({ kind: 'denied', given }),
} as unknown as Approver
const caller = { subject: 'ada', issuer: 'https://id', client: 'app' }

function turn(
  given: Partial<FlowHost> = { approver },
  principal: TaskPlan['principal'] = caller,
): TaskApprovals {
  const host = { log: (event: LogEvent) => void events.push(event), ...given } as FlowHost
  const plan = { flow: 'flow', principal, call: { args: { order: 7 } } } as unknown as TaskPlan
  return approvalsOf({ host, plan, target: { name: 'pay' } as Target, task: 'task' })
}

describe('a request for approval', () => {
  it('L2 is bound to the tool, its arguments and its caller', () => {
    expect(turn().bound).toEqual(['pay', { order: 7 }, ['https://id', 'ada', 'app']])
    expect(turn({ approver }, { subject: 'ada' }).bound).toEqual(['pay', { order: 7 }, ['', 'ada', '']])
    const anonymous = approvalsOf({
      host: { approver } as FlowHost,
      plan: { flow: 'flow', call: {} } as unknown as TaskPlan,
      target: { name: 'pay' } as Target,
      task: 'task',
    })
    expect(anonymous.bound).toEqual(['pay', null, null])
  })

  it('says to approvers who asks for what', async () => {
    asked.length = 0
    await turn().open('id', { key: 'sure' } as Asked)
    expect(asked).toEqual([
      { key: 'sure', id: 'id', flow: 'flow', task: 'task', tool: 'pay', args: { order: 7 }, caller },
    ])
    expect(await turn().use('id', 2, true)).toEqual({ kind: 'denied', given: ['id', 2, true] })
  })

  it('needs somebody to ask', async () => {
    expect([turn().available(), turn({}).available()]).toEqual([true, false])
    await expect(turn({}).open('id', {} as Asked)).rejects.toMatchObject({ code: 'SERVER_NO_APPROVER' })
    await expect(turn({}).use('id', 1, false)).rejects.toMatchObject({ code: 'SERVER_NO_APPROVER' })
  })

  it('L6 is retried if approvals fail, and never recorded as a decision', async () => {
    const fails = (error: unknown) => turn({ approver: { ...approver, use: () => Promise.reject(error) } })
    events.length = 0
    const cause = new Error('down')
    await expect(fails(cause).use('id', 1, false)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE', cause })
    expect(events).toEqual([expect.objectContaining({ event: 'warning', error: cause })])
    const own = new RondoError('LIMIT_ENTRIES')
    await expect(fails(own).use('id', 1, false)).rejects.toBe(own)
    expect(events).toHaveLength(1)
  })

  it('is named in the status of its task while it waits', () => {
    const approvals = turn()
    approvals.waits('hook', 'Waiting for the approval of finance')
    expect(approvals.waitsAt('hook')).toBe('Waiting for the approval of finance')
    expect(approvals.waitsAt('another')).toBeUndefined()
  })
})

describe('the result of a tool that asked for approvals', () => {
  const META = 'io.modelcontextprotocol/tool-approval'
  const result = { content: [{ type: 'text', text: 'done' }], _meta: { own: 1 } }
  const marked = (verdicts: Record<string, 'approved' | 'denied'>, isError = false) => {
    const approvals = turn()
    for (const [key, verdict] of Object.entries(verdicts)) approvals.learned(key, verdict)
    const { content, _meta } = approvals.mark({ ...result, ...(isError && { isError }) }) as unknown as {
      content: object[]
      _meta: Record<string, unknown>
    }
    return [_meta[META], content.slice(1), _meta.own]
  }
  const mixed =
    'The approval "a" was given. The approval "b" was not given. What needed one that was not given was not executed.'

  it.each<[Record<string, 'approved' | 'denied'>, boolean, object, string[]]>([
    [{ a: 'approved' }, false, { outcome: 'approved-executed' }, ['Approved, and executed.']],
    [{ a: 'approved' }, true, { outcome: 'execution-error' }, ['Approved, but the execution failed.']],
    [
      { a: 'denied' },
      false,
      { outcome: 'denied-not-executed' },
      ['Not approved: what needed the approval was not executed.'],
    ],
    // The message of a denial that the handler did not catch says so already.
    [{ a: 'denied' }, true, { outcome: 'denied-not-executed' }, []],
    [
      { a: 'approved', b: 'denied' },
      false,
      { outcome: 'approved-executed', approvals: { a: 'approved', b: 'denied' } },
      [mixed],
    ],
    [
      { a: 'approved', b: 'denied' },
      true,
      { outcome: 'execution-error', approvals: { a: 'approved', b: 'denied' } },
      [mixed],
    ],
    [
      { a: 'denied', b: 'denied' },
      false,
      { outcome: 'denied-not-executed', approvals: { a: 'denied', b: 'denied' } },
      ['Not approved: what needed the approval was not executed.'],
    ],
  ])('says what became of them: %j, isError %s', (verdicts, isError, approval, words) => {
    expect(marked(verdicts, isError)).toEqual([approval, words.map((text) => ({ type: 'text', text })), 1])
  })

  it('is unchanged if the handler has learned of none', () => {
    expect(turn().mark(result)).toBe(result)
  })

  it('has it in its _meta alone if it has no content', () => {
    const approvals = turn()
    approvals.learned('a', 'approved')
    expect(approvals.mark({ structuredContent: {} })).toEqual({
      structuredContent: {},
      _meta: { [META]: { outcome: 'approved-executed' } },
    })
  })
})
