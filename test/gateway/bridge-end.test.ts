/** The end of `rondo bridge`: it leaves no process behind. */

import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { describe, expect, it } from 'vitest'

/** Needs the build. */
const RONDO = resolve('packages/cli/dist/cli.js')
const LINGERING = resolve('test/support/lingering-stdio.mjs')

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

describe.concurrent('rondo bridge before a command that does not end by itself', () => {
  it.each<[string, readonly string[], string, (bridge: ReturnType<typeof spawn>) => void]>([
    ['at the end of its input', [], '', (bridge) => bridge.stdin?.end()],
    ['at SIGTERM', [], '', (bridge) => bridge.kill('SIGTERM')],
    ['at SIGTERM while it listens', ['--listen', '0'], '', (bridge) => bridge.kill('SIGTERM')],
    ['at SIGTERM while the command does not respond', [], 'mute', (bridge) => bridge.kill('SIGTERM')],
  ])('ends %s, and the command with it', async (_name, options, manner, end) => {
    const home = mkdtempSync(join(tmpdir(), 'rondo-bridge-end-'))
    const file = join(home, 'pid')
    const args = [RONDO, 'bridge', ...options, '--', process.execPath, LINGERING, file, manner]
    const bridge = spawn(process.execPath, args, { env: { ...process.env, RONDO_HOME: home }, stdio: 'pipe' })
    let [written, told] = ['', '']
    bridge.stdout?.on('data', (chunk) => {
      written += chunk
    })
    bridge.stderr?.on('data', (chunk) => {
      told += chunk
    })
    const ended = new Promise<number | null>((done) => bridge.on('exit', done))
    let pid = 0
    try {
      const pidOf = (): number => {
        pid = Number(readFileSync(file, 'utf8'))
        return pid
      }
      await expect.poll(pidOf).toBeGreaterThan(0)
      if (manner === '') await expect.poll(() => told).toMatch(/offers 1 tool/)
      expect(isAlive(pid)).toBe(true)
      end(bridge)
      expect(await ended).toBe(0)
      expect(isAlive(pid)).toBe(false)
      expect(written).toBe('')
    } finally {
      bridge.kill('SIGKILL')
      if (pid > 0 && isAlive(pid)) process.kill(pid, 'SIGKILL')
    }
  })
})
