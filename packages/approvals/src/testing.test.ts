import { createServer } from 'rondo'
import { createBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { type Approvals, createApprovals, type PeopleOptions } from './index.ts'

const ISSUER = 'https://login.example'
const principal = { issuer: ISSUER, subject: 'erin' }

function createRelease({ quorum = 1, person }: { quorum?: number; person?: PeopleOptions['person'] } = {}) {
  let approvals: Approvals | undefined
  const bench = createBench((options) => {
    const server = createServer({ name: 'releases', version: '1.0.0', ...options })
    server.tool('deploy', { task: 'auto' }, async (_, ctx) => {
      const from = 'managers'
      const { by } = await ctx.approve('deploy', { from, message: 'Deploy?', quorum, passNote: true })
      return by.map(({ id, via, note }) => `${id} via ${via}: ${note}`).join(', ')
    })
    approvals = createApprovals({
      url: 'http://127.0.0.1:3000/approvals',
      login: () => undefined,
      groups: () => ['ann', 'bob', 'erin', 'Erin'],
      person,
    })
    server.use(approvals)
    return server
  })
  return { bench, desk: () => (approvals as Approvals).desk() }
}

describe('task.approve and task.deny of rondo/testing', () => {
  it('V6 record a vote of the test as such, and the handler gets the note', async () => {
    const { bench, desk } = createRelease()
    const task = bench.task('deploy', {}, { principal })
    await task.next()
    const done = await task.approve('deploy', { by: 'ann', note: 'Go.' })
    expect(done).toMatchObject({ kind: 'complete', text: expect.stringContaining('ann via test: Go.') })
    const events = (await desk().entries(0, 10)).map(({ happening }) => happening)
    expect(events).toContainEqual(expect.objectContaining({ event: 'voted', person: 'ann', via: 'test' }))
    expect(await desk().verify()).toMatchObject({ entries: 4, problems: [] })
  })

  it('V3 wait for the rest of a quorum, across a restart', async () => {
    const { bench } = createRelease({ quorum: 2 })
    const task = bench.task('deploy', {}, { principal })
    await task.next()
    expect(await task.approve('deploy', { by: 'ann' })).toMatchObject({ kind: 'waiting' })
    await expect(task.approve('deploy', { by: 'ann' })).rejects.toThrow('you have decided before')
    await task.restart()
    expect(await task.approve('deploy', { by: 'bob' })).toMatchObject({ kind: 'complete' })
  })

  it('V3 end the call with one denial, after which nothing is open', async () => {
    const { bench } = createRelease({ quorum: 2 })
    const task = bench.task('deploy', {}, { principal })
    await task.next()
    await task.approve('deploy', { by: 'ann' })
    expect(await task.deny('deploy', { by: 'bob', note: 'No.' })).toMatchObject({ result: { isError: true } })
    await expect(task.approve('deploy', { by: 'erin' })).rejects.toThrow('does not wait for this approval')
  })

  it.each([
    ['the caller', 'erin', principal, 'cannot be told from the caller'],
    ['the caller in another case', 'Erin', principal, 'cannot be told from the caller'],
    ['a login of another issuer', { issuer: 'x', subject: 'ann' }, principal, 'cannot be told from'],
    ['somebody outside the group', 'eve', principal, 'not a member of managers'],
    ['anybody if the caller is anonymous', 'ann', undefined, 'Call with { principal'],
  ])('V1 refuse %s, and the task waits on', async (_who, by, caller, reason) => {
    const { bench } = createRelease()
    const task = bench.task('deploy', {}, { principal: caller })
    await task.next()
    await expect(task.approve('deploy', { by })).rejects.toThrow(reason)
    expect(await task.next()).toMatchObject({ kind: 'waiting' })
  })

  it('V1 ask person who a login is', async () => {
    const person: PeopleOptions['person'] = ({ subject, email }) => email?.split('@')[0] ?? subject
    const { bench } = createRelease({ person })
    const task = bench.task('deploy', {}, { principal })
    await task.next()
    const erin = { issuer: 'other', subject: '17', email: 'erin@example.com' }
    await expect(task.approve('deploy', { by: erin })).rejects.toThrow('cannot be told from the caller')
    const ann = { issuer: 'other', subject: '18', email: 'ann@example.com' }
    expect(await task.approve('deploy', { by: ann })).toMatchObject({ kind: 'complete' })
  })

  it('say what is missing: a task, a request of that name, an extension', async () => {
    const { bench } = createRelease()
    const task = bench.task('deploy', {}, { principal })
    await expect(task.approve('deploy', { by: 'ann' })).rejects.toThrow('Call next() first')
    await task.next()
    await expect(task.approve('refund', { by: 'ann' })).rejects.toThrow('does not wait for this approval')

    const alone = createBench((options) => {
      const server = createServer({ name: 'alone', version: '1.0.0', ...options })
      server.tool('wait', { task: 'always' }, async (_, ctx) => {
        await ctx.sleep('nap', '1 day')
        return 'done'
      })
      return server
    }).task('wait')
    await alone.next()
    await expect(alone.approve('deploy', { by: 'ann' })).rejects.toThrow('pass createApprovals(…)')
  })
})
