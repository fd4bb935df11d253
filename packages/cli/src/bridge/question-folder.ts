/**
 * Questions that a person answers in another terminal. The bridge puts each into a folder of this user; `rondo answer` shows it and
 * puts the answer beside it.
 *
 *   <home>/asking/<id>.json     { version 1, pid, upstream, server, target, request }   mode 0600
 *   <home>/asking/<id>.answer   the response                                            mode 0600
 *   <home>/asking/<id>.lock     the id of the process that shows the question
 *
 * 1. The folder belongs to this user alone. If others can enter it, nobody is asked and no answer is taken.
 * 2. The first answer wins: it is linked into place, and never replaced. The bridge takes it only if it fits the form.
 * 3. A question is gone with its call: the bridge removes it, and a question of a process that has ended is not shown.
 */

import { randomBytes } from 'node:crypto'
import { existsSync, linkSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { AskLocally, LocalQuestion } from '@rondo/gateway'
import type { ElicitResult, InputRequest } from 'rondo/client'
import { checkForm, readForm } from 'rondo/forms'
import { isRecord } from 'rondo/internal'
import { CommandError } from '../command-line.ts'
import { isAlive, makeFolder, takeLock, tryUnlink, writeFile } from '../home.ts'

/** A question in the folder. */
export interface FolderQuestion extends Omit<LocalQuestion, 'signal'> {
  readonly id: string
}

interface AskInFolder extends AskLocally {
  close(): void
}

interface FolderOptions {
  /** Called when a question is in the folder. */
  onAsked(question: FolderQuestion): void
  /** Called with the reason why a question could not be put there. It counts as cancelled. */
  onProblem(reason: string): void
  /** Calls `fn` again and again, until the returned function is called. */
  readonly every?: (fn: () => void) => () => void
}

const MAX_OPEN = 32
const MAX_ANSWER = 65_536
const POLL_MS = 250
const ID = /^[0-9a-f]{24}$/

const folderOf = (home: string): string => join(home, 'asking')

/** The bridge's side. */
export function askInFolder(
  home: string,
  { onAsked, onProblem, every = everyPoll }: FolderOptions,
): AskInFolder {
  const folder = folderOf(home)
  const open = new Map<string, () => void>()
  return {
    kinds: ['form', 'url'],
    ask: ({ signal, ...question }) =>
      new Promise((resolve) => {
        if (open.size >= MAX_OPEN || signal.aborted) return resolve({ action: 'cancel' })
        const id = randomBytes(12).toString('hex')
        const path = join(folder, id)
        const end = (response: ElicitResult): void => {
          stop()
          open.delete(id)
          signal.removeEventListener('abort', cancel)
          for (const ending of ['json', 'answer']) remove(`${path}.${ending}`)
          resolve(response)
        }
        const cancel = (): void => end({ action: 'cancel' })
        const stop = every(() => {
          const answer = takeAnswer(folder, `${path}.answer`, question.request)
          if (answer !== undefined) end(answer)
        })
        open.set(id, cancel)
        signal.addEventListener('abort', cancel, { once: true })
        try {
          makeFolder(folder)
          assertPrivate(folder)
          writeFile(`${path}.json`, `${JSON.stringify({ version: 1, pid: process.pid, ...question })}\n`)
          onAsked({ id, ...question })
        } catch (error) {
          onProblem((error as Error).message)
          cancel()
        }
      }),
    close() {
      for (const cancel of [...open.values()]) cancel()
    },
  }
}

/** Removes a file as far as possible: a bridge does not end because of one that stays. */
function remove(path: string): void {
  try {
    tryUnlink(path)
  } catch {
    // Its question is not listed any more, or is asked again.
  }
}

function everyPoll(fn: () => void): () => void {
  const timer = setInterval(fn, POLL_MS)
  timer.unref()
  return () => clearInterval(timer)
}

/** Throws if anybody but this user can enter the folder. */
function assertPrivate(folder: string): void {
  if (process.platform === 'win32') return
  const { mode, uid } = statSync(folder)
  if ((mode & 0o077) === 0 && uid === process.getuid?.()) return
  throw new CommandError(
    'stored',
    `Others can read ${folder}. Run "chmod 700" on it, and check that you own it`,
  )
}

/** The answer, if there is one that fits the question. One that does not fit is removed, and the question stays open. */
function takeAnswer(folder: string, path: string, request: InputRequest): ElicitResult | undefined {
  let text: string
  try {
    assertPrivate(folder)
    if (statSync(path).size > MAX_ANSWER) throw new RangeError('The answer is too long')
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if (error instanceof RangeError) remove(path)
    return undefined
  }
  const answer = toAnswer(text, request)
  if (answer === undefined) remove(path)
  return answer
}

function toAnswer(text: string, request: InputRequest): ElicitResult | undefined {
  const given = parse(text)
  if (!isRecord(given) || request.method !== 'elicitation/create') return undefined
  const { action, content } = given
  if (action === 'decline' || action === 'cancel') return { action }
  if (action !== 'accept') return undefined
  if (request.params.mode === 'url') return { action }
  if (!isRecord(content)) return undefined
  const checked = checkForm(readForm(request.params.requestedSchema).fields, content)
  return checked.ok ? { action, content: checked.content } : undefined
}

/** The person's side: the open questions, the oldest first. */
export function questionsIn(home: string): FolderQuestion[] {
  const folder = folderOf(home)
  let names: string[]
  try {
    names = readdirSync(folder)
  } catch {
    return []
  }
  assertPrivate(folder)
  const found = names.flatMap((name) => {
    const id = name.endsWith('.json') ? name.slice(0, -5) : ''
    return ID.test(id) ? (readQuestion(folder, id) ?? []) : []
  })
  return found.toSorted((a, b) => a.at - b.at).map(({ question }) => question)
}

/** Whether the question can be answered: its call has not ended, and no answer waits for the bridge. */
export function isOpen(home: string, id: string): boolean {
  return readQuestion(folderOf(home), id) !== undefined
}

function readQuestion(folder: string, id: string): { question: FolderQuestion; at: number } | undefined {
  const path = join(folder, `${id}.json`)
  try {
    const value = parse(readFileSync(path, 'utf8'))
    if (!isRecord(value) || value.version !== 1 || typeof value.pid !== 'number') return undefined
    if (!isAlive(value.pid)) {
      for (const ending of ['json', 'answer']) remove(join(folder, `${id}.${ending}`))
      return undefined
    }
    if (existsSync(join(folder, `${id}.answer`))) return undefined
    const { pid: _, version: __, ...rest } = value
    return isQuestion(rest) ? { question: { id, ...rest }, at: statSync(path).mtimeMs } : undefined
  } catch {
    return undefined
  }
}

/** Whether a file has what a terminal shows. */
function isQuestion(
  value: Readonly<Record<string, unknown>>,
): value is Omit<FolderQuestion, 'id'> & typeof value {
  const { upstream, server, method, target, request } = value
  if (![upstream, method, target, server ?? ''].every((one) => typeof one === 'string')) return false
  if (!isRecord(request) || request.method !== 'elicitation/create' || !isRecord(request.params)) return false
  const { mode, message, url, requestedSchema } = request.params
  if (typeof message !== 'string') return false
  return mode === 'url' ? typeof url === 'string' : isRecord(requestedSchema)
}

/** Claims a question for this process. Throws if another terminal shows it. */
export function claimQuestion(home: string, id: string): () => void {
  return takeLock(join(folderOf(home), `${id}.lock`), 'The question')
}

/** Answers a question. Returns false if it is not open any more. */
export function answerQuestion(home: string, id: string, response: ElicitResult): boolean {
  const path = join(folderOf(home), id)
  const own = `${path}.${process.pid}`
  if (!isOpen(home, id)) return false
  writeFileSync(own, JSON.stringify(response), { mode: 0o600 })
  try {
    linkSync(own, `${path}.answer`)
    if (existsSync(`${path}.json`) || !existsSync(`${path}.answer`)) return true
    // The call ended meanwhile, and nobody will take the answer.
    remove(`${path}.answer`)
    return false
  } catch {
    return false
  } finally {
    remove(own)
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
