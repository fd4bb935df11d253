/**
 * One handler that asks its caller, and then somebody else (`ctx.approve`), under every carrier that can have a task: the result
 * and the effect keys are the same everywhere (R10). Carriers without a task end the call with a clear error, and nothing runs.
 */

import { createApprovals } from '@rondo/approvals'
import { createServer, type Server, type ServerOptions } from 'rondo'
import { connect } from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { follow, type Rpc, send } from '../support/task-client.ts'
import { idIn, PLAIN, pushHost, roundsHost, toResult, untilEnded } from '../support/task-tools.ts'
import { connectTurns } from '../support/turns-client.ts'

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const ISSUER = 'https://login.example'
const PAGES = 'http://127.0.0.1:3000/approvals'
const script = { reason: { reason: 'a fix' } }
const accept = { action: 'accept', content: script.reason } as const
type Verdict = 'approve' | 'deny'

interface Release {
  readonly server: Server
  /** The keys of the effects that ran. */
  readonly effects: readonly string[]
  /** How many requests for approval were ever made. */
  asked(): Promise<number>
  /** Decides as Ann, on the page, once the request is open. */
  decide(verdict: Verdict): Promise<void>
}

function createRelease(task: 'always' | undefined, options: Partial<ServerOptions> = {}): Release {
  const effects: string[] = []
  const approvals = createApprovals({
    url: PAGES,
    login: () => ({ kind: 'login', issuer: ISSUER, subject: 'ann' }),
    groups: () => ['ann'],
  })
  const server = createServer({
    name: 'releases',
    version: '1.0.0',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
    randomId: () => 'the-same-in-every-carrier',
    authenticate: () => ({ issuer: ISSUER, subject: 'erin' }),
    ...options,
  })
  closing.push(() => server.close())
  server.use(approvals)
  server.tool('deploy', { task, taskPollMs: 20 }, async (_, ctx) => {
    const schema = z.object({ reason: z.string() })
    const { reason } = await ctx.ask('reason', { message: 'Why?', schema })
    const { by } = await ctx.approve('deploy', { from: 'managers', message: 'Deploy?', details: { reason } })
    await ctx.effect('deploy', ({ key }) => void effects.push(key))
    return `Deployed for ${reason}, approved by ${by[0].id}.`
  })
  const visit = (path: string, init?: RequestInit) => server.fetch(new Request(`${PAGES}${path}`, init))
  return {
    server,
    effects,
    asked: async () => (await approvals.desk().entries(0, 1)).length,
    async decide(decision) {
      const open = async () => (await approvals.desk().list(['open'], 2)).requests
      await expect.poll(open, { interval: 5 }).toHaveLength(1)
      const [{ id } = { id: '' }] = await open()
      const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(await (await visit(`/r/${id}`)).text()) ?? []
      await visit(`/r/${id}`, { method: 'POST', body: new URLSearchParams({ csrf, decision }) })
      expect(await approvals.desk().get(id)).toMatchObject({
        state: decision === 'deny' ? 'denied' : 'approved',
      })
    },
  }
}

interface Ran {
  readonly text: string
  readonly isError: boolean
  readonly effects: readonly string[]
}

const CALL = { name: 'deploy', arguments: {} }

async function asTask(verdict: Verdict): Promise<Ran> {
  const { server, effects, decide } = createRelease('always')
  const { result } = await send(server, 'tools/call', CALL)
  const [ended] = await Promise.all([follow(server, String(result?.taskId), script), decide(verdict)])
  return { ...read(ended), effects }
}

async function promoted(verdict: Verdict): Promise<Ran> {
  const { server, effects, decide } = createRelease(undefined)
  const { result: asked } = await send(server, 'tools/call', CALL)
  expect(asked).toMatchObject({ resultType: 'input_required', inputRequests: { reason: {} } })
  const { requestState } = asked as { requestState?: string }
  const { result } = await send(server, 'tools/call', {
    ...CALL,
    requestState,
    inputResponses: { reason: accept },
  })
  expect(result).toMatchObject({ resultType: 'task' })
  const [ended] = await Promise.all([follow(server, String(result?.taskId), {}), decide(verdict)])
  return { ...read(ended), effects }
}

const byClient =
  (mode: '2025-11-25' | 'DRAFT-2026-v1') =>
  async (verdict: Verdict): Promise<Ran> => {
    const { server, effects, decide } = createRelease('always', { turns: false })
    const { url } = await server.listen({ port: 0, signals: false })
    const client = await connect(url, { mode, answers: { elicitation: () => accept } })
    closing.push(() => client.close())
    const statuses = new Set<string>()
    const onTask = ({ status }: { status: string }) => void statuses.add(status)
    const [result] = await Promise.all([client.callTool('deploy', {}, { onTask }), decide(verdict)])
    expect(statuses.size).toBeGreaterThan(0)
    return { ...read({ result }), effects }
  }

async function byToolsInRounds(verdict: Verdict): Promise<Ran> {
  const { server, effects, decide } = createRelease('always', { tasks: { tools: true } })
  const host = roundsHost(server)
  const id = idIn(await host.call('deploy'))
  const [{ text, isError }] = await Promise.all([untilEnded(host, id, script), decide(verdict)])
  return { text, isError, effects }
}

async function byToolsInPush(verdict: Verdict): Promise<Ran> {
  const { server, effects, decide } = createRelease('always', { tasks: { tools: true } })
  const { url } = await server.listen({ port: 0, signals: false })
  const host = await pushHost(url, () => 'reason')
  const id = idIn(await host.call('deploy'))
  const [{ text, isError }] = await Promise.all([untilEnded(host, id, script), decide(verdict)])
  return { text, isError, effects }
}

/** The result of a task. */
function read(ended: Readonly<Record<string, unknown>>): Pick<Ran, 'text' | 'isError'> {
  const { text, isError } = toResult(ended as Rpc)
  return { text, isError }
}

const CARRIERS: [string, (verdict: Verdict) => Promise<Ran>][] = [
  ['a task that the rounds became', promoted],
  ['a task of 2025-11-25', byClient('2025-11-25')],
  ['a task of DRAFT-2026-v1', byClient('DRAFT-2026-v1')],
  ['the task tools, in rounds', byToolsInRounds],
  ['the task tools, by push', byToolsInPush],
]

describe.each(CARRIERS)('ctx.approve under %s', (_name, run) => {
  it('L1 R10 deploys under the effect key of a task of 2026-07-28', async () => {
    const ran = await run('approve')
    expect(ran).toEqual(await asTask('approve'))
    expect(ran).toMatchObject({ isError: false, effects: [expect.any(String)] })
    expect(ran.text).toBe('Deployed for a fix, approved by ann.\nApproved, and executed.')
  })

  it('L3 R10 ends with the same denial as a task of 2026-07-28, and runs nothing', async () => {
    const ran = await run('deny')
    expect(ran).toEqual(await asTask('deny'))
    expect(ran).toMatchObject({ isError: true, effects: [] })
    expect(ran.text).toContain('was not executed')
  })
})

const asRounds = async ({ server }: Release) => roundsHost(server).call('deploy', {}, script)

async function asPush({ server }: Release) {
  const { url } = await server.listen({ port: 0, signals: false })
  const client = await connectOlder(url, { capabilities: PLAIN, answer: () => accept })
  return toResult((await client.call('tools/call', CALL)) as Rpc)
}

async function asTurns({ server }: Release) {
  const client = await connectTurns((request) => server.fetch(request), 'http://127.0.0.1/mcp')
  const turn = await client.request('tools/call', CALL)
  const got = await client.answer(turn, [accept])
  return toResult((got as unknown as { message: Rpc }).message)
}

describe.each([
  ['rounds of a client without tasks', asRounds],
  ['push', asPush],
  ['turns', asTurns],
])('ctx.approve under %s', (_name, run) => {
  it('L1 ends with an error that says what is missing, and neither asks nor runs anything', async () => {
    const release = createRelease(undefined)
    const { text, isError } = await run(release)
    expect(isError).toBe(true)
    expect(text).toContain('"deploy" waits for the approval "deploy", which only a task can do')
    expect(text).toContain('this client did not declare the capability')
    expect(text).toContain('Nothing after this point was done.')
    expect(release.effects).toEqual([])
    expect(await release.asked()).toBe(0)
  })
})
