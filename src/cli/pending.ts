/** `rondo pending`: the calls that wait for an answer. */

import { openQuestions } from '../client/pending.ts'
import { JSON_OPTION, openStore } from './call-session.ts'
import type { Command, Invocation } from './command.ts'
import { sayPending } from './describe-call.ts'
import type { Exit } from './exit-code.ts'
import { print, printJson, tell } from './io.ts'
import type { Listed } from './pending-store.ts'
import { pendingJson } from './print-call.ts'
import { SEAL_OPTIONS } from './seal-key.ts'
import { formatTable } from './table.ts'
import { sayTarget } from './target.ts'

export const pendingCommand: Command = {
  name: 'pending',
  usage: '[id]',
  summary: 'lists the calls that wait for an answer, or shows one',
  options: { ...JSON_OPTION, ...SEAL_OPTIONS },
  async run(invocation) {
    const [start] = invocation.words
    return start === undefined ? listAll(invocation) : showOne(invocation, start)
  },
}

function showOne(invocation: Invocation, start: string): Exit {
  const { io, options } = invocation
  const store = openStore(invocation)
  const { target, pending } = store.load(store.find(start))
  if (options.flag('json')) printJson(io, { target: sayTarget(target), ...pendingJson(pending) })
  else print(io, `pending ${pending.id}\n${sayPending(pending)}`)
  return 'done'
}

function listAll(invocation: Invocation): Exit {
  const { io, options } = invocation
  const store = openStore(invocation)
  const listed = store.list()
  if (options.flag('json')) {
    printJson(io, { pending: listed.map(toJson) })
    return 'done'
  }
  if (listed.length === 0) tell(io, `No call is pending in ${store.folder}.`)
  else print(io, formatTable(listed.map((one) => toRow(one, io.now()))))
  return 'done'
}

function toJson({ id, call, problem }: Listed): Record<string, unknown> {
  return call === undefined
    ? { id, problem }
    : { target: sayTarget(call.target), ...pendingJson(call.pending) }
}

function toRow({ id, call, problem }: Listed, now: number): string[] {
  if (call === undefined) return [id, '', problem ?? '']
  const { pending, target } = call
  const name = pending.request.method === 'resources/read' ? pending.request.uri : pending.request.name
  const open = openQuestions(pending).map(([key]) => key)
  const idle = pending.task === undefined ? 'answered, not sent' : 'a task'
  const state = open.length === 0 ? idle : `asks ${open.join(', ')}`
  return [id, sayAge(now - pending.askedAt), name, state, sayTarget(target)]
}

export function sayAge(ms: number): string {
  const minutes = Math.floor(Math.max(0, ms) / 60_000)
  if (minutes < 1) return 'now'
  if (minutes < 120) return `${minutes} min`
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`
}
