/**
 * Stryker's side of `npm run mutants`: a test runner that loads the tests once and runs them again for every mutant, and the rule for
 * texts. Stryker's own runner for vitest starts a worker for every mutant, which takes longer than the tests do.
 *
 * Every outcome is written down at once, so a run that was interrupted goes on where it was. A mutant is tried again if the code around
 * it has changed, or the file of the test that noticed it. One that survived is tried with the files that are new or have changed.
 */

import { createHash } from 'node:crypto'
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { basename, relative, resolve } from 'node:path'
import { createVitest } from 'vitest/node'

const OUTCOMES = 'node_modules/.cache/mutants.jsonl'

const hashOf = (...parts) => createHash('sha256').update(JSON.stringify(parts)).digest('base64url')
const hashOfFile = (file) => hashOf(readFileSync(file, 'utf8'))

class Runner {
  /** The outcomes of earlier runs. */
  known = new Map()

  capabilities() {
    return { reloadEnvironment: true }
  }

  async init() {
    const lines = existsSync(OUTCOMES) ? readFileSync(OUTCOMES, 'utf8').trim().split('\n') : []
    for (const known of lines.map((line) => JSON.parse(line))) {
      if (known.status !== 'timeout') this.known.set(known.mutant, known)
    }
    const options = { config: 'scripts/mutants/vitest.config.ts', watch: false, reporters: [{}] }
    this.vitest = await createVitest('test', options)
    const specs = await this.vitest.globTestSpecifications()
    this.files = specs.map((spec) => spec.moduleId)
    this.channel = new BroadcastChannel('mutants')
    const ready = this.reply()
    // worker.js answers commands instead of running this file; `dispose` ends it.
    this.vitest.runTestSpecifications(specs.slice(0, 1)).catch(() => {})
    await ready
  }

  /** Runs tests in the worker: see `Command` in worker.js. */
  async send(command) {
    const reply = this.reply()
    this.channel.postMessage(command)
    return await reply
  }

  reply() {
    return new Promise((resolve) => {
      this.channel.onmessage = ({ data }) => resolve(data)
    })
  }

  async dryRun() {
    const { tests, coverage, error } = await this.send({ files: this.files })
    if (error !== undefined) return { status: 'error', errorMessage: error }
    // The fastest files first: most mutants are noticed by many tests.
    const time = (file) =>
      tests.reduce((sum, test) => sum + (test.fileName === file ? test.timeSpentMs : 0), 0)
    this.files.sort((a, b) => time(a) - time(b))
    return { status: 'complete', tests, mutantCoverage: coverage }
  }

  async mutantRun(options) {
    const { fileName, location, replacement } = options.activeMutant
    const { start, end } = location
    const lines = readFileSync(fileName, 'utf8').split('\n')
    const around = lines.slice(Math.max(0, start.line - 2), end.line + 3)
    const mutant = hashOf(basename(fileName), around, start.column, end.column, replacement)
    const known = this.known.get(mutant)
    const isSame = ({ file, hash }) => existsSync(file) && hash === hashOfFile(file)
    if (known?.status === 'killed' && known.tests.every(isSame)) {
      const killedBy = known.tests.map(({ file, name }) => `${resolve(file)}#${name}`)
      return { status: 'killed', killedBy, failureMessage: 'as before', nrOfTests: 0 }
    }
    const passed = known?.status === 'survived' ? known.tests.filter(isSame) : []
    const files = this.filesOf(options).filter((file) => !passed.some((one) => resolve(one.file) === file))
    const result = files.length === 0 ? { status: 'survived', nrOfTests: 0 } : await this.run(options, files)
    const noted = (file, name) => ({ file: relative('.', file), name, hash: hashOfFile(file) })
    const tests =
      result.status === 'survived'
        ? [...passed, ...files.map((file) => noted(file))]
        : (result.killedBy ?? []).map((id) => {
            const [file, ...name] = id.split('#')
            return noted(file, name.join('#'))
          })
    const at = `${fileName}:${start.line + 1}:${start.column + 1}`
    const line = { mutant, status: result.status, at, replacement, tests }
    if (files.length > 0) appendFileSync(OUTCOMES, `${JSON.stringify(line)}\n`)
    return result
  }

  filesOf({ testFilter }) {
    return this.files.filter((file) => !testFilter || testFilter.some((id) => id.startsWith(`${file}#`)))
  }

  async run({ activeMutant, testFilter, hitLimit, mutantActivation }, files) {
    const mutant = activeMutant.id
    const command = { mutant, files, tests: testFilter, hitLimit, reload: mutantActivation === 'static' }
    const { tests, hits, error } = await this.send(command)
    if (hits > hitLimit) return { status: 'timeout', reason: 'The mutant ran 100 times as often as before' }
    const failed = tests.filter((test) => test.status === 1)
    const nrOfTests = tests.length
    if (failed.length === 0 && error === undefined) return { status: 'survived', nrOfTests }
    const killedBy =
      failed.length > 0 ? failed.map((test) => test.id) : tests.slice(-1).map((test) => test.id)
    return { status: 'killed', killedBy, failureMessage: failed[0]?.failureMessage ?? error, nrOfTests }
  }

  async dispose() {
    this.channel?.close()
    await this.vitest?.exit(true)
  }
}

/** Sentences are for people: tests check codes and members, so a mutant of a text says nothing about them. */
function shouldIgnore(path) {
  const parts = path.isTemplateLiteral() ? path.node.quasis.map((part) => part.value.raw) : []
  const text = path.isStringLiteral() ? path.node.value : parts.join('x')
  return /\w,? \w+ \w/.test(text) ? 'a sentence' : undefined
}

export const strykerPlugins = [
  { kind: 'TestRunner', name: 'loaded', factory: () => new Runner() },
  { kind: 'Ignore', name: 'sentences', value: { shouldIgnore } },
]
