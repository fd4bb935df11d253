/**
 * Runs one scenario of the official suite in a separate process, with a timeout, and evaluates its results.
 *
 * Stricter than the suite: a warning is a failure, and so is a scenario in which nothing succeeded.
 */

import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { REVISION, SUITE_ENTRY } from './scenario.ts'

const PRELOAD = new URL('./glob-sync.js', import.meta.url).href
const ROOT = fileURLToPath(new URL('../..', import.meta.url))

export type Target =
  | { readonly kind: 'server'; readonly url: string }
  | { readonly kind: 'client'; readonly command: string }

interface Check {
  readonly id: string
  readonly name: string
  readonly status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO'
  readonly errorMessage?: string
}

export interface Verdict {
  readonly scenario: string
  readonly kind: 'passed' | 'failed' | 'skipped'
  readonly succeeded: number
  /** One line per check that failed or warned, or the reason why the scenario did not run. */
  readonly problems: readonly string[]
  /** Warnings that were allowed. */
  readonly allowed: readonly string[]
}

export interface RunOptions {
  readonly timeoutMs?: number
  /** The revision at which the scenario is run. */
  readonly revision?: string
  /** Warnings to allow, by the id or name of the check. */
  readonly allowWarnings?: readonly RegExp[]
}

export function judge(scenario: string, checks: readonly Check[], allow: readonly RegExp[] = []): Verdict {
  const describe = (check: Check) => `${check.status} ${check.id}: ${check.errorMessage ?? check.name}`
  const isAllowed = (check: Check) =>
    check.status === 'WARNING' && allow.some((pattern) => pattern.test(check.id) || pattern.test(check.name))
  const bad = checks.filter((check) => check.status === 'FAILURE' || check.status === 'WARNING')
  const problems = bad.filter((check) => !isAllowed(check)).map(describe)
  const allowed = bad.filter(isAllowed).map(describe)
  const succeeded = checks.filter((check) => check.status === 'SUCCESS').length
  if (problems.length > 0) return { scenario, kind: 'failed', succeeded, problems, allowed }
  if (succeeded > 0) return { scenario, kind: 'passed', succeeded, problems, allowed }
  return { scenario, kind: 'skipped', succeeded, problems: ['no check succeeded'], allowed }
}

function commandLine(
  target: Target,
  scenario: string,
  output: string,
  { timeoutMs, revision }: { timeoutMs: number; revision: string },
): string[] {
  const what = target.kind === 'server' ? ['--url', target.url] : ['--command', target.command]
  const how = ['--scenario', scenario, '--spec-version', revision, '--force', '--timeout', String(timeoutMs)]
  return ['--import', PRELOAD, SUITE_ENTRY, target.kind, ...what, ...how, '-o', output]
}

/** Runs the suite; returns what it printed, or undefined if it timed out. */
function runSuite(args: readonly string[], timeoutMs: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] })
    let printed = ''
    let stopped = false
    const timer = setTimeout(() => {
      stopped = true
      child.kill('SIGKILL')
    }, timeoutMs)
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        if (printed.length < 100_000) printed += text
      })
    }
    child.on('close', () => {
      clearTimeout(timer)
      resolve(stopped ? undefined : printed)
    })
  })
}

function readChecks(folder: string): Check[] | undefined {
  const file = readdirSync(folder, { recursive: true, encoding: 'utf8' }).find((path) =>
    path.endsWith('checks.json'),
  )
  return file === undefined ? undefined : (JSON.parse(readFileSync(join(folder, file), 'utf8')) as Check[])
}

export async function runScenario(
  target: Target,
  scenario: string,
  options: RunOptions = {},
): Promise<Verdict> {
  const { timeoutMs = 120_000, revision = REVISION, allowWarnings = [] } = options
  const folder = mkdtempSync(join(tmpdir(), 'rondo-conformance-'))
  try {
    const args = commandLine(target, scenario, folder, { timeoutMs, revision })
    const printed = await runSuite(args, timeoutMs + 15_000)
    const failed = (problem: string): Verdict => ({
      scenario,
      kind: 'failed',
      succeeded: 0,
      problems: [problem],
      allowed: [],
    })
    if (printed === undefined) return failed(`stopped after ${timeoutMs + 15_000} ms`)
    const checks = readChecks(folder)
    if (checks === undefined) return failed(`wrote no result: ${printed.trim().slice(-600)}`)
    return judge(scenario, checks, allowWarnings)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
