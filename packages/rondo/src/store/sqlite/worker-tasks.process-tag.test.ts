import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { expect, it } from 'vitest'
import { isProcessGone, processTag } from './worker-tasks.ts'

const hasProc = existsSync('/proc/self/stat')

/** Another process of the same system, as it would name itself. */
const tagOf = (pid: number, start: string) => processTag().replace(/:\d+:\d+$/, `:${pid}:${start}`)

it('a tag identifies this process, which is alive', () => {
  expect(isProcessGone(processTag())).toBe(false)
})

it.runIf(hasProc)('a tag tells a process that has ended, and one whose pid was reused', async () => {
  const child = spawn('sleep', ['60'])
  await once(child, 'spawn')
  const pid = child.pid ?? 0
  expect(isProcessGone(tagOf(pid, '1'))).toBe(true)
  child.kill('SIGKILL')
  await once(child, 'exit')
  expect(isProcessGone(tagOf(pid, '1'))).toBe(true)
})

it.each(['', 'unknown', 'unknown:12', 'other-boot:123:1:1', 'a:b:c:d'])(
  'a process with the tag %j is not declared dead',
  (tag) => {
    expect(isProcessGone(tag)).toBe(false)
  },
)
