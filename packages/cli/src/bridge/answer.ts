/**
 * `rondo answer` without an id: shows the questions of this user's bridges in a terminal, one after the other, until Ctrl-C. It
 * needs a terminal, because a person answers, and not a program that a model runs.
 */

import type { ElicitResult, FlowRequest } from 'rondo/client'
import { askQuestion } from '../ask/question.ts'
import { createTerminal, Dismissed } from '../ask/terminal.ts'
import { type Exit, usageError } from '../command-line.ts'
import { homeOf } from '../home.ts'
import { canAsk, type Io, tell } from '../io.ts'
import { answerQuestion, claimQuestion, type FolderQuestion, isOpen, questionsIn } from './question-folder.ts'

const POLL_MS = 250

export async function answerBridges(io: Io): Promise<Exit> {
  if (!canAsk(io))
    throw usageError(
      'Name the pending call by its id; "rondo pending" lists them. The questions of a bridge are answered by a person: run "rondo answer" in a terminal',
    )
  const home = homeOf(io)
  const later = new Set<string>()
  while (!io.signal.aborted) {
    const claimed = claimNext(home, later)
    if (claimed === undefined) {
      io.status.start('waiting for a question of a bridge; Ctrl-C ends')
      await pause(io.signal)
      continue
    }
    io.status.stop()
    try {
      if ((await showOne(io, home, claimed.question, later)) === 'interrupted') return 'interrupted'
    } finally {
      claimed.release()
    }
  }
  io.status.stop()
  return 'done'
}

/** The oldest question that no other terminal shows. */
function claimNext(
  home: string,
  later: ReadonlySet<string>,
): { readonly question: FolderQuestion; release(): void } | undefined {
  for (const question of questionsIn(home)) {
    if (later.has(question.id)) continue
    try {
      return { question, release: claimQuestion(home, question.id) }
    } catch {
      // Another terminal shows it.
    }
  }
  return undefined
}

async function showOne(
  io: Io,
  home: string,
  { id, upstream, server, method, target, request }: FolderQuestion,
  later: Set<string>,
): Promise<'interrupted' | undefined> {
  const gone = new AbortController()
  const timer = setInterval(() => void (isOpen(home, id) || gone.abort()), POLL_MS)
  const send = (response: ElicitResult): void => {
    const isSent = answerQuestion(home, id, response)
    tell(io, isSent ? 'Sent.' : 'The question is no longer open; nothing was sent.')
  }
  try {
    const named = server === undefined || server === upstream ? upstream : `${upstream} (${server})`
    const call = (
      method === 'resources/read' ? { method, uri: target } : { method, name: target }
    ) as FlowRequest
    const asking = { server: { target: named }, request: call, round: 1, canKeep: true }
    const reply = await askQuestion(createTerminal(io, gone.signal), asking, request, { index: 1, count: 1 })
    if (reply.kind === 'later') later.add(id)
    else send(reply.response as ElicitResult)
    return undefined
  } catch (error) {
    if (!(error instanceof Dismissed)) throw error
    if (gone.signal.aborted) {
      tell(io, 'The question is no longer open.')
      return undefined
    }
    send({ action: 'cancel' })
    return 'interrupted'
  } finally {
    clearInterval(timer)
  }
}

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, POLL_MS)
    signal.addEventListener('abort', done)
  })
}
