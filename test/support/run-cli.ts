/** Runs the built `rondo` command without a terminal, with its own home directory. Needs the build. */

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

export const CLI: string = resolve('packages/cli/dist/cli.js')

export interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface CliHome {
  readonly path: string
  readonly env: Record<string, string>
  run(args: readonly string[], options?: { input?: string; env?: Record<string, string> }): Promise<Ran>
  /** Like `run`, with `--json`; returns what was printed. */
  json(args: readonly string[], options?: { input?: string }): Promise<Ran & { value: Printed }>
  remove(): void
}

/** The output of `--json`, as far as tests use it. */
export interface Printed {
  readonly [name: string]: unknown
  readonly status?: string
  readonly id?: string
}

export function createCliHome(): CliHome {
  const path = mkdtempSync(join(tmpdir(), 'rondo-cli-'))
  const { PATH = '', HOME = '' } = process.env
  const env = { PATH, HOME, RONDO_HOME: path }
  const run: CliHome['run'] = (args, options = {}) =>
    new Promise((done, fail) => {
      const child = spawn(process.execPath, [CLI, ...args], {
        env: { ...env, ...options.env },
        stdio: ['pipe', 'pipe', 'pipe'],
      })
      const texts = { stdout: '', stderr: '' }
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        texts.stdout += text
      })
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        texts.stderr += text
      })
      child.on('error', fail)
      child.on('close', (code) => done({ code, ...texts }))
      child.stdin.on('error', () => {})
      child.stdin.end(options.input ?? '')
    })
  return {
    path,
    env,
    run,
    async json(args, options) {
      const ran = await run([...args, '--json'], options)
      return { ...ran, value: JSON.parse(ran.stdout) as Printed }
    },
    remove: () => rmSync(path, { recursive: true, force: true }),
  }
}
