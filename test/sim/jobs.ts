/**
 * Many schedules in several processes. The seeds are handed out in chunks; the chunks that are done are kept in a file, so that
 * a run which was interrupted can be resumed as long as the code is the same.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { loadRuntime, runtimeDigest } from './runtime.ts'
import { runSchedule, type ScheduleOptions } from './schedule.ts'
import type { StoreKind } from './stores.ts'

const CHUNK = 50
const PROGRESS_MS = 10_000
/** A schedule leaves much garbage, and nearly all of it at once. */
const EXEC_ARGV = [...process.execArgv, '--max-semi-space-size=64']

export interface JobsOptions {
  readonly seed: number
  readonly schedules: number
  readonly jobs: number
  readonly steps: number
  readonly store: StoreKind
  /** Stops after this time; what is done can be resumed. */
  readonly minutes?: number
  readonly resume?: boolean
  /** Where to keep the progress. */
  readonly file?: string
}

/** What was done so far. */
interface Progress {
  readonly digest: string
  readonly seed: number
  readonly steps: number
  readonly store: StoreKind
  readonly done: number[]
  schedules: number
  events: number
  readonly checks: Record<string, number>
}

/** The outcome of one chunk. */
interface Report {
  readonly chunk: number
  readonly schedules: number
  readonly events: number
  readonly checks: Readonly<Record<string, number>>
  readonly failed?: number
}

export interface JobsOutcome extends Pick<Progress, 'schedules' | 'events' | 'checks'> {
  /** Schedules of this run, without those of the runs that it resumes. */
  readonly ran: number
  readonly seconds: number
  /** The first seed that was found to fail. */
  readonly failed?: number
}

/** Runs the schedules in child processes that execute this command with `--chunks`. */
export async function runJobs(options: JobsOptions, command: readonly string[]): Promise<JobsOutcome> {
  const { seed, schedules, jobs, steps, store, minutes = Number.POSITIVE_INFINITY } = options
  const file = options.file ?? resolve(`node_modules/.cache/sim-${store}-${seed}.json`)
  const fresh = { digest: await runtimeDigest(), seed, steps, store, done: [] }
  const progress = (options.resume && readProgress(file, fresh)) || {
    ...fresh,
    ...{ schedules: 0, events: 0, checks: {} },
  }
  const done = new Set(progress.done)
  const before = progress.schedules
  const began = performance.now()
  const seconds = (): number => (performance.now() - began) / 1000
  let next = 0
  let failed: number | undefined
  const take = (): number | undefined => {
    while (done.has(next)) next++
    const isOver = failed !== undefined || next * CHUNK >= schedules || seconds() > minutes * 60
    return isOver ? undefined : next++
  }
  const show = (): void => {
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, JSON.stringify(progress))
    const rate = (progress.schedules - before) / seconds()
    console.log(`${progress.schedules} of ${schedules} schedules, ${rate.toFixed(1)}/s`)
  }
  const timer = setInterval(show, PROGRESS_MS)
  const work = (child: ChildProcess): Promise<void> =>
    new Promise((finish, fail) => {
      const hand = (): void => {
        const chunk = take()
        if (chunk === undefined) child.disconnect()
        else
          child.send({ chunk, from: seed + chunk * CHUNK, count: Math.min(CHUNK, schedules - chunk * CHUNK) })
      }
      child.on('message', (report: Report | 'ready') => {
        if (report !== 'ready') {
          progress.schedules += report.schedules
          progress.events += report.events
          for (const [name, count] of Object.entries(report.checks))
            progress.checks[name] = (progress.checks[name] ?? 0) + count
          if (report.failed === undefined) progress.done.push(report.chunk)
          else failed = Math.min(failed ?? report.failed, report.failed)
        }
        hand()
      })
      child.on('error', fail)
      child.on('exit', (code) =>
        code === 0 ? finish() : fail(new Error(`A process of the simulator ended with ${code}`)),
      )
    })
  const [main = '', ...args] = command
  const children = Array.from({ length: jobs }, () =>
    fork(main, args, { stdio: 'inherit', execArgv: EXEC_ARGV }),
  )
  try {
    await Promise.all(children.map(work))
  } finally {
    clearInterval(timer)
    for (const child of children) child.kill()
  }
  show()
  const { events, checks } = progress
  return {
    schedules: progress.schedules,
    events,
    checks,
    ran: progress.schedules - before,
    seconds: seconds(),
    failed,
  }
}

function readProgress(
  file: string,
  { digest, seed, steps, store }: Omit<Progress, 'schedules' | 'events' | 'checks'>,
) {
  if (!existsSync(file)) return undefined
  const kept = JSON.parse(readFileSync(file, 'utf8')) as Progress
  const isSame = kept.digest === digest && kept.seed === seed && kept.steps === steps && kept.store === store
  if (!isSame) console.log('The code or the options have changed since: all schedules run again.')
  return isSame ? kept : undefined
}

/** Runs the chunks that the parent process hands out. */
export async function runChunks(options: ScheduleOptions): Promise<void> {
  const runtime = await loadRuntime()
  await new Promise<void>((finish) => {
    process.on('disconnect', finish)
    process.on('message', async ({ chunk, from, count }: { chunk: number; from: number; count: number }) => {
      const checks: Record<string, number> = {}
      let events = 0
      let schedules = 0
      let failed: number | undefined
      for (let seed = from; seed < from + count && failed === undefined; seed++) {
        const verdict = await runSchedule(runtime, seed, options)
        schedules++
        events += verdict.events
        for (const [name, checked] of verdict.checks) checks[name] = (checks[name] ?? 0) + checked
        if (verdict.problems.length > 0) failed = seed
      }
      process.send?.({ chunk, schedules, events, checks, failed } satisfies Report)
    })
    process.send?.('ready')
  })
}
