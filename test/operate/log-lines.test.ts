/** The lines in the log of a process that was killed, that exits, or whose log nobody reads any more. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { callTool } from '../support/echo-service.ts'
import { processFile } from '../support/process-file.ts'

const PROGRAM = processFile('test/support/logged-process.ts')
const folder = mkdtempSync(join(tmpdir(), 'rondo-log-'))
const file = join(folder, 'stderr.log')
const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

async function start(stderr: number | 'pipe') {
  const child = spawn(process.execPath, [PROGRAM], { stdio: ['ignore', 'ignore', stderr, 'ipc'] })
  children.push(child)
  const [{ url }] = (await once(child, 'message')) as [{ url: string }]
  const call = async (tool = 'flow'): Promise<string> => {
    const { headers, message } = callTool(tool)
    const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(message) })
    const { result } = (await response.json()) as { result: { content: { text: string }[] } }
    return result.content[0]?.text ?? ''
  }
  return { child, call }
}

async function startWithFile() {
  const stderr = openSync(file, 'w')
  const started = await start(stderr)
  closeSync(stderr)
  return started
}

const flows = (text = readFileSync(file, 'utf8')): string[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ event }) => event === 'round')
    .map(({ flow }) => flow)

describe('the log on standard error', () => {
  it('R11 has the line of every call whose reply arrived before a kill -9', async () => {
    const { child, call } = await startWithFile()
    const replied: string[] = []
    for (let number = 0; number < 10; number++) replied.push(await call())
    child.kill('SIGKILL')
    await once(child, 'exit')
    expect(flows()).toEqual(replied)
  })

  it('has every line once when calls are concurrent and the process stops on a signal', async () => {
    const { child, call } = await startWithFile()
    const replied = await Promise.all(Array.from({ length: 100 }, () => call()))
    child.kill('SIGTERM')
    await once(child, 'exit')
    expect(flows().sort()).toEqual(replied.sort())
  })

  it('has the lines of a turn in which the process exits', async () => {
    const { child, call } = await startWithFile()
    const calls = Array.from({ length: 20 }, () => call().catch(() => undefined))
    const exits = call('exit').catch(() => undefined)
    await once(child, 'exit')
    const replied = (await Promise.all(calls)).filter((flow) => flow !== undefined)
    await exits
    expect(child.exitCode).toBe(3)
    expect(flows()).toEqual(expect.arrayContaining(replied))
    expect(readFileSync(file, 'utf8')).toContain('"target":"exit"')
  })

  it('has every line once if it is a pipe that was full for a while', async () => {
    const { child, call } = await start('pipe')
    const replied: string[] = []
    // Each line has more than 200 bytes, and a pipe holds 64 KiB.
    for (let turn = 0; turn < 20; turn++)
      replied.push(...(await Promise.all(Array.from({ length: 40 }, () => call()))))
    const last = await call()
    let text = ''
    for await (const chunk of child.stderr?.setEncoding('utf8') ?? []) {
      text += chunk
      if (text.includes(last)) break
    }
    replied.push(last)
    expect(text.length).toBeGreaterThan(2 * 64 * 1024)
    expect(flows(text).sort()).toEqual(replied.sort())
  })

  it('has every line if it is a pipe that is full when the process is told to stop', async () => {
    const { child, call } = await start('pipe')
    const replied: string[] = []
    for (let turn = 0; turn < 20; turn++)
      replied.push(...(await Promise.all(Array.from({ length: 40 }, () => call()))))
    child.kill('SIGTERM')
    let text = ''
    for await (const chunk of child.stderr?.setEncoding('utf8') ?? []) text += chunk
    expect(text).toContain('"phase":"finished"')
    expect(flows(text).sort()).toEqual(replied.sort())
  })

  it('R11 ends on a signal although nobody reads the pipe any more', async () => {
    const { child, call } = await start('pipe')
    for (let turn = 0; turn < 10; turn++) await Promise.all(Array.from({ length: 40 }, () => call()))
    child.stderr?.destroy()
    child.kill('SIGTERM')
    await once(child, 'exit')
    expect(child.exitCode).toBe(0)
  })

  it('R11 may be a pipe that nobody reads any more', async () => {
    const { child, call } = await start('pipe')
    await call()
    child.stderr?.destroy()
    for (let number = 0; number < 5; number++) await call()
    await Promise.all(Array.from({ length: 20 }, () => call()))
    expect(child.exitCode).toBeNull()
  })
})
