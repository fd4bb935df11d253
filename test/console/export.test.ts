/** A flow that was exported as a test runs where the server is, and fails if the server does something else. Needs the build. */

import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { type Client, connect, type PendingCall } from 'rondo/client'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { toTest } from '../../console/export.ts'
import { apply, EMPTY, type Flow } from '../../console/model.ts'
import { type ConsoleProcess, startConsole } from '../support/console-process.ts'

vi.setConfig({ testTimeout: 300_000 })

let desk: ConsoleProcess
let client: Client
beforeAll(async () => {
  desk = await startConsole({ instances: 2, args: ['--no-watch'] })
  client = await connect(desk.mcp)
})
afterAll(async () => {
  await client.close()
  await desk.stop()
})

const room = (name: string) => ({ room: { action: 'accept', content: { room: name } } }) as const
const sure = { sure: { action: 'accept', content: { confirm: true } } } as const
const flows = async (): Promise<Flow[]> => [...apply(EMPTY, await desk.events()).flows.values()]

async function begin(name: string): Promise<PendingCall> {
  const started = await client.start({ method: 'tools/call', name, arguments: {} })
  if (started.status === 'complete') throw new Error('The call asked nothing')
  return started.pending
}

async function next(pending: PendingCall, answers: object): Promise<PendingCall> {
  const asked = await client.resume(pending, answers as never)
  if (asked.status !== 'input_required') throw new Error(`Not asked: ${asked.status}`)
  return asked.pending
}

/** Runs the tests of the folder, as the author of the server would. */
async function runTests(): Promise<{ testResults: { name: string; status: string }[] }> {
  mkdirSync(join(desk.folder, 'node_modules'), { recursive: true })
  symlinkSync(resolve('node_modules/vitest'), join(desk.folder, 'node_modules/vitest'))
  symlinkSync(resolve('.'), join(desk.folder, 'node_modules/rondo'))
  const { PATH = '', HOME = '' } = process.env
  const RONDO_KEYS = readFileSync(join(desk.folder, '.home/keys'), 'utf8').trim()
  const child = spawn(
    process.execPath,
    [resolve('node_modules/vitest/vitest.mjs'), 'run', '--root', desk.folder, '--reporter=json'],
    { cwd: desk.folder, env: { PATH, HOME, RONDO_KEYS }, stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let text = ''
  let errors = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
  })
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    errors += chunk
  })
  await new Promise((done) => child.once('close', done))
  const json = /\{"numTotalTestSuites".*$/s.exec(text)?.[0]
  if (json === undefined) throw new Error(`No report: ${text}${errors}`)
  return JSON.parse(json)
}

it('replays a call with a lost reply, one that was declined, and a task; and fails for another server', async () => {
  const asked = await next(await begin('book'), room('red'))
  const lost = (await flows())[0]
  await desk.act('lose', { flow: lost?.id })
  await client.resume(asked, sure as never).catch(() => {})
  await client.resume(asked, sure as never).catch(() => {})

  const other = await next(await begin('book'), room('blue'))
  await client.resume(other, { sure: { action: 'decline' } } as never)

  const { taskId = '' } = (await begin('report')).task ?? {}
  await vi.waitFor(async () => {
    expect((await client.task(taskId).get()).status).toBe('input_required')
  }, 60_000)
  await client.task(taskId).answer(room('blue'))
  await vi.waitFor(async () => {
    const last = (await flows()).at(-1)?.rounds.at(-1)
    expect(last?.event.outcome).toBe('complete')
  }, 60_000)

  const served = await (await desk.get('/api/status')).json()
  const recorded = await flows()
  expect(recorded.map(({ target }) => target)).toEqual(['book', 'book', 'report'])
  const tests = recorded.map((flow) => toTest(flow, desk.file, served))
  expect(tests[0]).toContain('call.loseReply(')
  expect(tests[1]).toContain('"sure": decline')
  expect(tests[2]).toContain("bench.task('report'".replaceAll("'", '"'))
  const wrong = tests[0]?.replace('Booked red', 'Booked green') ?? ''
  expect(wrong).not.toBe(tests[0])
  for (const [i, text] of [...tests, wrong].entries()) writeFileSync(join(desk.folder, `${i}.test.ts`), text)

  const { testResults } = await runTests()
  expect(Object.fromEntries(testResults.map(({ name, status }) => [basename(name), status]))).toEqual({
    '0.test.ts': 'passed',
    '1.test.ts': 'passed',
    '2.test.ts': 'passed',
    '3.test.ts': 'failed',
  })
})
