/** A flow that was exported as a test runs where the server is, and fails if the server does something else. Needs the build. */

import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { type Client, connect, type PendingCall } from 'rondo/client'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { toTest } from '../../packages/cli/console/export.ts'
import { apply, EMPTY, type Flow } from '../../packages/cli/console/model.ts'
import { type ConsoleProcess, deskSource, officialSource, startConsole } from '../support/console-process.ts'

vi.setConfig({ testTimeout: 300_000 })

/** The desk, whose reminder sleeps this long. */
const sleeping = (time: string): string => deskSource().replace("'4 s'", `'${time}'`)

const folder = mkdtempSync(join(tmpdir(), 'rondo-exported-'))
let desk: ConsoleProcess
let official: ConsoleProcess
beforeAll(async () => {
  ;[desk, official] = await Promise.all([
    startConsole({ source: sleeping('100 ms'), instances: 2, args: ['--no-watch'] }),
    startConsole({ source: officialSource(true), instances: 1, args: ['--no-watch'] }),
  ])
})
afterAll(async () => {
  await Promise.all([desk?.stop(), official?.stop()])
  rmSync(folder, { recursive: true, force: true })
})

const room = (name: string) => ({ room: { action: 'accept', content: { room: name } } }) as const
const sure = { sure: { action: 'accept', content: { confirm: true } } } as const
const flowsOf = async ({ events }: ConsoleProcess): Promise<Flow[]> => [
  ...apply(EMPTY, await events()).flows.values(),
]

async function begin(client: Client, name: string): Promise<PendingCall> {
  const started = await client.start({ method: 'tools/call', name, arguments: {} })
  if (started.status === 'complete') throw new Error('The call asked nothing')
  return started.pending
}

async function next(client: Client, pending: PendingCall, answers: object): Promise<PendingCall> {
  const asked = await client.resume(pending, answers as never)
  if (asked.status !== 'input_required') throw new Error(`Not asked: ${asked.status}`)
  return asked.pending
}

/** Answers twice, since the first reply gets lost. */
async function loseReply(of: ConsoleProcess, client: Client, pending: PendingCall, answers: object) {
  await of.act('lose', { flow: (await flowsOf(of)).at(-1)?.id })
  for (let i = 0; i < 2; i++) await client.resume(pending, answers as never).catch(() => {})
}

async function runTask(of: ConsoleProcess, client: Client, name = 'report'): Promise<void> {
  const { taskId = '' } = (await begin(client, name)).task ?? {}
  await vi.waitFor(async () => {
    expect((await client.task(taskId).get()).status).toBe('input_required')
  }, 120_000)
  await client.task(taskId).answer(room('blue'))
  await vi.waitFor(async () => {
    const { tasks } = apply(EMPTY, await of.events())
    expect(tasks.get(taskId)?.result).toMatchObject({ content: [{}] })
  }, 120_000)
}

/** The flows that a console has recorded, as tests. */
async function exportAll(of: ConsoleProcess, wanted: readonly string[]): Promise<string[]> {
  const served = await (await of.get('/api/status')).json()
  const { flows, tasks } = apply(EMPTY, await of.events())
  const recorded = [...flows.values()]
  expect(recorded.map(({ target }) => target)).toEqual(wanted)
  return recorded.map((flow) => toTest(flow, of.file, served, tasks.get(flow.task ?? '')))
}

/** Runs the tests of the folder, as the author of the server would. */
async function runTests(): Promise<{ testResults: { name: string; status: string; message: string }[] }> {
  mkdirSync(join(folder, 'node_modules'), { recursive: true })
  for (const name of ['vitest', '@modelcontextprotocol'])
    symlinkSync(resolve('node_modules', name), join(folder, 'node_modules', name))
  symlinkSync(resolve('packages/rondo'), join(folder, 'node_modules/rondo'))
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(
    process.execPath,
    [resolve('node_modules/vitest/vitest.mjs'), 'run', '--root', folder, '--reporter=json'],
    { cwd: folder, env: { PATH, HOME }, stdio: ['ignore', 'pipe', 'pipe'] },
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

it('an exported test replays a call with a lost reply, one that was declined, and tasks on the clock of the bench; and fails for another server', async () => {
  const client = await connect(desk.mcp)
  await loseReply(desk, client, await next(client, await begin(client, 'book'), room('red')), sure)
  const other = await next(client, await begin(client, 'book'), room('blue'))
  await client.resume(other, { sure: { action: 'decline' } } as never)
  await runTask(desk, client)
  await runTask(desk, client, 'remind')
  await client.close()
  const tests = await exportAll(desk, ['book', 'book', 'report', 'remind'])
  expect(tests[0]).toContain('call.loseReply(')
  expect(tests[1]).toContain('"sure": decline')
  expect(tests[2]).toContain('bench.task("report"')
  expect(tests[3]).toContain(`text: "Reminded: blue"`)

  const guest = await connect(official.mcp)
  await loseReply(official, guest, await begin(guest, 'book'), room('red'))
  await runTask(official, guest)
  await guest.close()
  const officials = await exportAll(official, ['book', 'report'])
  expect(officials[0]).toContain('return createMcpHandler(served)')
  expect(officials[0]).toContain('call.loseReply(')
  // This file exports the server and not the function that builds it; the flow is the same.
  const [flow] = await flowsOf(official)
  const itself = { exported: { name: 'default', isFunction: false }, isOfficial: true, routes: [] }
  const fromItself = flow ? toTest(flow, 'itself.mjs', itself) : ''

  const write = (name: string, text: string): void => writeFileSync(join(folder, name), text)
  const wrong = (text = '', from: string, to: string): string => {
    expect(text).toContain(from)
    return text.replace(from, to)
  }
  // The recorded task slept for a moment, this one sleeps for most of a day: on the clock of the bench, that is as fast.
  write('server.mjs', sleeping('20 h'))
  write('built.mjs', officialSource(true))
  write('itself.mjs', officialSource(false))
  const files: Record<string, string | undefined> = {
    'lost.test.ts': tests[0],
    'declined.test.ts': tests[1],
    'task.test.ts': tests[2],
    'sleeping-task.test.ts': tests[3],
    'wrong-task.test.ts': wrong(tests[3], 'Reminded: blue', 'Reminded: red'),
    'wrong.test.ts': wrong(tests[0], 'Booked red', 'Booked green'),
    'official-lost.test.ts': wrong(officials[0], './server.mjs', './built.mjs'),
    'official-task.test.ts': wrong(officials[1], './server.mjs', './built.mjs'),
    'official-itself.test.ts': fromItself,
    'official-wrong.test.ts': wrong(fromItself, 'Booked red', 'Booked green'),
  }
  for (const [name, text = ''] of Object.entries(files)) write(name, text)

  const { testResults } = await runTests()
  const isWrong = (name: string): boolean => name.includes('wrong')
  const problems = testResults.filter(({ name, status }) => (status === 'failed') !== isWrong(basename(name)))
  expect(problems).toEqual([])
  expect(testResults.map(({ name }) => basename(name)).sort()).toEqual(Object.keys(files).sort())
})
