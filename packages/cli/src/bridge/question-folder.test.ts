import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { LocalQuestion } from '@rondo/gateway'
import type { InputRequest } from 'rondo/client'
import { describe, expect, it } from 'vitest'
import { answerQuestion, askInFolder, claimQuestion, isOpen, questionsIn } from './question-folder.ts'

const FORM: InputRequest = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'How many?',
    requestedSchema: {
      type: 'object',
      properties: { seats: { type: 'integer', minimum: 1 } },
      required: ['seats'],
    },
  },
}

/** A bridge that looks for answers when the test says so. */
function bridge(home = mkdtempSync(join(tmpdir(), 'rondo-asking-'))) {
  const looks = new Set<() => void>()
  const problems: string[] = []
  const asker = askInFolder(home, {
    onAsked() {},
    onProblem: (reason) => void problems.push(reason),
    every(fn) {
      looks.add(fn)
      return () => looks.delete(fn)
    },
  })
  const abort = new AbortController()
  const ask = (more: Partial<LocalQuestion> = {}) =>
    asker.ask({
      upstream: 'crm',
      method: 'tools/call',
      target: 'book',
      request: FORM,
      signal: abort.signal,
      ...more,
    })
  const look = () => [...looks].forEach((fn) => void fn())
  const folder = join(home, 'asking')
  return { home, folder, asker, ask, look, abort, problems, looks }
}

const YES = { action: 'accept', content: { seats: 3 } } as const
const idOf = (home: string): string => questionsIn(home)[0]?.id ?? ''

describe('a question in the folder', () => {
  it('is listed, answered, and leaves nothing behind', async () => {
    const { home, folder, ask, look } = bridge()
    const answer = ask({ server: 'CRM' })
    expect(questionsIn(home)).toEqual([
      {
        id: expect.any(String),
        upstream: 'crm',
        server: 'CRM',
        method: 'tools/call',
        target: 'book',
        request: FORM,
      },
    ])
    expect(answerQuestion(home, idOf(home), YES)).toBe(true)
    // It is not shown again while the answer waits for the bridge.
    expect(questionsIn(home)).toEqual([])
    look()
    expect(await answer).toEqual(YES)
    expect(readdirSync(folder)).toEqual([])
  })

  it('is readable by its owner alone', () => {
    const { folder, ask } = bridge()
    void ask()
    expect(statSync(folder).mode & 0o777).toBe(0o700)
    for (const name of readdirSync(folder)) expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600)
  })

  it('takes the first answer, and no second one', async () => {
    const { home, ask, look } = bridge()
    const answer = ask()
    const id = idOf(home)
    expect(answerQuestion(home, id, { action: 'decline' })).toBe(true)
    expect(answerQuestion(home, id, YES)).toBe(false)
    look()
    expect(await answer).toEqual({ action: 'decline' })
    expect(answerQuestion(home, id, YES)).toBe(false)
  })

  it('is shown in one terminal at a time', () => {
    const { home, ask } = bridge()
    void ask()
    const release = claimQuestion(home, idOf(home))
    expect(() => claimQuestion(home, idOf(home))).toThrow(/in use/)
    release()
    expect(claimQuestion(home, idOf(home))).toBeTypeOf('function')
  })

  it('is gone when the call has ended, and when the bridge is closed', async () => {
    const { home, folder, asker, ask, abort } = bridge()
    const first = ask()
    const id = idOf(home)
    abort.abort()
    expect(await first).toEqual({ action: 'cancel' })
    expect(isOpen(home, id)).toBe(false)
    const second = ask({ signal: new AbortController().signal })
    asker.close()
    expect(await second).toEqual({ action: 'cancel' })
    expect(readdirSync(folder)).toEqual([])
  })

  it('of a process that has ended is removed, and not shown', () => {
    const { home, folder, ask } = bridge()
    void ask()
    const file = join(folder, `${idOf(home)}.json`)
    // No process has this id: it is larger than any system gives.
    const text = readFileSync(file, 'utf8').replace(`"pid":${process.pid}`, '"pid":2147483646')
    writeFileSync(file, text)
    expect(questionsIn(home)).toEqual([])
    expect(existsSync(file)).toBe(false)
  })

  it.each<[string, unknown]>([
    ['nothing else', {}],
    ['no server', { target: 'book', method: 'tools/call', request: FORM }],
    ['a request that is none', { upstream: 'crm', target: 'book', method: 'tools/call', request: 1 }],
    [
      'no form',
      {
        upstream: 'crm',
        target: 'book',
        method: 'tools/call',
        request: { method: FORM.method, params: { message: 'x' } },
      },
    ],
    [
      'another kind of request',
      { upstream: 'crm', target: 'book', method: 'tools/call', request: { method: 'roots/list' } },
    ],
  ])('in a file with %s is not shown', (_what, junk) => {
    const { home, ask } = bridge()
    void ask()
    const name = `${'0'.repeat(24)}.json`
    writeFileSync(
      join(home, 'asking', name),
      JSON.stringify({ version: 1, pid: process.pid, ...(junk as object) }),
    )
    expect(questionsIn(home).map(({ upstream }) => upstream)).toEqual(['crm'])
    expect(isOpen(home, '0'.repeat(24))).toBe(false)
    expect(answerQuestion(home, '0'.repeat(24), { action: 'decline' })).toBe(false)
  })

  it('is cancelled beyond 32, so that a server cannot fill the disk', async () => {
    const { home, ask } = bridge()
    for (let i = 0; i < 32; i += 1) void ask({ signal: new AbortController().signal })
    expect(await ask()).toEqual({ action: 'cancel' })
    expect(questionsIn(home)).toHaveLength(32)
  })
})

describe('an answer that does not fit', () => {
  it.each<[string, string]>([
    ['is not JSON', '{'],
    ['is another type', '"accept"'],
    ['has an unknown action', '{"action":"approve"}'],
    ['has no content', '{"action":"accept"}'],
    ['breaks a bound', '{"action":"accept","content":{"seats":0}}'],
    ['lacks a field', '{"action":"accept","content":{}}'],
    ['is too long', JSON.stringify({ action: 'decline', pad: 'x'.repeat(70_000) })],
  ])('because it %s is dropped, and the question stays open', async (_name, text) => {
    const { home, folder, ask, look } = bridge()
    const answer = ask()
    const id = idOf(home)
    writeFileSync(join(folder, `${id}.answer`), text)
    look()
    expect(isOpen(home, id)).toBe(true)
    expect(existsSync(join(folder, `${id}.answer`))).toBe(false)
    answerQuestion(home, id, YES)
    look()
    expect(await answer).toEqual(YES)
  })

  it('has only the fields of the form', async () => {
    const { home, ask, look } = bridge()
    const answer = ask()
    answerQuestion(home, idOf(home), { action: 'accept', content: { seats: 3, other: 'x' } })
    look()
    expect(await answer).toEqual(YES)
  })
})

describe.skipIf(process.platform === 'win32')('a folder that others can enter', () => {
  it('asks nothing, and says why', async () => {
    const { folder, ask, problems, looks } = bridge()
    mkdirSync(folder, { mode: 0o755 })
    chmodSync(folder, 0o755)
    expect(await ask()).toEqual({ action: 'cancel' })
    expect(problems).toEqual([expect.stringMatching(/Others can read .*chmod 700/)])
    expect(looks.size).toBe(0)
  })

  it('gets no answer into a bridge, and is not read by rondo answer', async () => {
    const { home, folder, ask, look } = bridge()
    const answer = ask()
    const id = idOf(home)
    chmodSync(folder, 0o777)
    writeFileSync(join(folder, `${id}.answer`), JSON.stringify(YES))
    look()
    expect(() => questionsIn(home)).toThrow(/Others can read/)
    expect(await Promise.race([answer, 'open'])).toBe('open')
    // Control: the same file is taken once the folder is private again.
    chmodSync(folder, 0o700)
    look()
    expect(await answer).toEqual(YES)
  })
})
