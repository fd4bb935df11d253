/**
 * The worker's side of `npm run mutants`: it gets commands from plugin.js and runs tests, in modules that stay loaded between them.
 *
 * 1. A mutant that changes how a module loads gets fresh modules, and so does the one after it.
 * 2. So does a mutant that tests passed without reaching: the module keeps what it computed before.
 * 3. A test that fails with a mutant must pass without it in the same modules, or else fail in fresh ones.
 * 4. Properties try 20 inputs instead of 100, and look for no smaller counterexample. A score is a lower bound for that.
 * 5. A test that nobody knows runs: its title contains something that the mutant changes.
 * 6. A hanging test fails after idle time, not after time: a busy machine is not a failure.
 */

import { collectTests, startTests } from '@vitest/runner'
import fc from 'fast-check'
import { TestRunner, vi } from 'vitest'

/** @typedef {{ mutant?: string, files: string[], tests?: string[], hitLimit?: number, reload?: boolean }} Command */

fc.configureGlobal({ numRuns: 20, endOnFailure: true })

const IDLE_MS = 2_000
const { setInterval, clearInterval } = globalThis
/** The object in which instrumented code reads the active mutant. */
const stryker = {}
globalThis.__stryker__ = stryker
const idle = () => performance.eventLoopUtilization().idle
const nameOf = (task) => (task.suite ? `${nameOf(task.suite)} ${task.name}` : task.name)
const idOf = (test) => `${test.file.filepath}#${nameOf(test).trim()}`

/** Milliseconds that each test takes without a mutant, and for which it waits. */
const times = new Map()
const waits = new Map()
const timeOf = (task) => times.get(idOf(task)) ?? Math.min(...(task.tasks ?? []).map(timeOf))

function sortTasks(suite) {
  suite.tasks?.sort((a, b) => timeOf(a) - timeOf(b)).forEach(sortTasks)
}

let errors = []
for (const event of ['unhandledRejection', 'uncaughtException']) {
  process.on(event, (error) => errors.push(error))
}

class QuietRunner extends TestRunner {
  constructor(outer, { mutant, tests, files }) {
    super({ ...outer.config, testNamePattern: undefined })
    this.moduleRunner = outer.moduleRunner
    this.__setTraces(outer._otel)
    this.mutant = mutant
    this.wanted = tests && new Set(tests)
    this.done = []
    for (const file of files) this.forget(file)
  }

  /** Test files are evaluated again in each run; what they import stays. */
  forget(file) {
    const module = this.workerState.evaluatedModules.getModuleById(file)
    if (module) this.workerState.evaluatedModules.invalidateModule(module)
  }

  /** Code that a test file runs outside of a test is covered by all of its tests. */
  onCollectStart(file) {
    super.onCollectStart(file)
    stryker.currentTestId = file.filepath
  }

  async onBeforeRunSuite(suite) {
    stryker.currentTestId = suite.file.filepath
    await super.onBeforeRunSuite(suite)
  }

  /** The fastest tests first. */
  onCollected(files) {
    if (this.mutant !== undefined) files.forEach(sortTasks)
  }

  async onBeforeRunTask(test) {
    const id = idOf(test)
    if (this.done.failed || (this.wanted && times.has(id) && !this.wanted.has(id))) test.mode = 'skip'
    stryker.currentTestId = id
    await super.onBeforeRunTask(test)
  }

  async runTask(test) {
    const start = idle()
    const limit = IDLE_MS + 5 * (waits.get(idOf(test)) ?? 1e6)
    let watch
    const hangs = new Promise((_, reject) => {
      watch = setInterval(() => idle() - start > limit && reject(new Error('The test hangs')), 100)
    })
    try {
      await Promise.race([TestRunner.getTestFn(test)(), hangs])
    } finally {
      clearInterval(watch)
      if (!waits.has(idOf(test))) waits.set(idOf(test), idle() - start)
    }
  }

  onAfterRunTask(test) {
    stryker.currentTestId = test.file.filepath
    super.onAfterRunTask(test)
    if (test.result === undefined || test.mode === 'skip') return
    if (this.mutant === undefined) times.set(idOf(test), test.result.duration)
    const [error] = test.result.errors ?? []
    this.done.push({
      id: idOf(test),
      name: nameOf(test).trim(),
      fileName: test.file.filepath,
      timeSpentMs: Math.round(test.result.duration ?? 0),
      status: test.result.state === 'fail' ? 1 : 0,
      failureMessage: error ? `${error.name}: ${error.message}` : 'no message',
    })
    this.done.failed ||= this.mutant !== undefined && test.result.state === 'fail'
  }

  async onAfterRunSuite(suite) {
    this.workerState.current = suite.suite || suite.file
  }
}

function add(sum, hits) {
  for (const [mutant, count] of Object.entries(hits)) sum[mutant] = (sum[mutant] ?? 0) + count
}

export default class Worker extends TestRunner {
  stale = false

  /** Never resolves: the process ends with its last command. */
  onBeforeCollect() {
    const channel = new BroadcastChannel('mutants')
    channel.onmessage = async ({ data: command }) => channel.postMessage(await this.judge(command))
    channel.postMessage('ready')
    return new Promise(() => {})
  }

  /** @param {Command} command */
  async judge(command) {
    if (command.mutant === undefined) return await this.dryRun(command)
    const result = await this.run(command, command.reload || this.stale)
    this.stale = command.reload
    const failed = result.tests.find((test) => test.status === 1)
    if (command.reload) return result
    if (failed === undefined && result.error === undefined && result.hits > 0) return result
    if (failed !== undefined) {
      const control = await this.run({ files: [failed.fileName], tests: [failed.id], mutant: '' }, false)
      if (control.error === undefined && control.tests.every((test) => test.status === 0)) return result
    }
    this.stale = true
    return await this.run({ ...command, tests: undefined }, true)
  }

  /** Runs without a mutant, and notes which test covers which. Static are those that run when a module is loaded. */
  async dryRun(command) {
    stryker.mutantCoverage = { static: {}, perTest: {} }
    const coverage = stryker.mutantCoverage
    const collect = async () => {
      await collectTests(command.files, new QuietRunner(this, command))
      const hits = {}
      for (const covered of Object.values(coverage.perTest)) add(hits, covered)
      coverage.perTest = {}
      return hits
    }
    const first = await collect()
    const second = await collect()
    const result = await this.run(command, false)
    for (const { id, fileName } of result.tests) {
      coverage.perTest[id] ??= {}
      add(coverage.perTest[id], coverage.perTest[fileName] ?? {})
    }
    for (const file of command.files) delete coverage.perTest[file]
    const loaded = Object.entries(first).filter(([mutant, hits]) => hits > (second[mutant] ?? 0))
    coverage.static = Object.fromEntries(loaded)
    return { ...result, coverage }
  }

  async run(command, reload) {
    if (reload) vi.resetModules()
    errors = []
    stryker.activeMutant = command.mutant
    stryker.hitCount = 0
    stryker.hitLimit = command.hitLimit
    const runner = new QuietRunner(this, command)
    for (const file of command.files) {
      const [{ result }] = await startTests([file], runner)
      errors.push(...(result?.errors ?? []))
      if (command.mutant !== undefined && (runner.done.failed || errors.length > 0)) break
    }
    await new Promise((resolve) => setImmediate(resolve))
    stryker.activeMutant = ''
    return {
      tests: [...runner.done],
      hits: stryker.hitCount,
      error: errors[0]?.stack ?? errors[0]?.message,
    }
  }
}
