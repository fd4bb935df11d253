/**
 * `rondo approvals`: the requests for approval of a server, and their record, for operators. Runs on the file's own approvals, with
 * its name, keys and store, in a process that serves nothing and runs no tasks: whichever process serves the store continues a
 * task whose request was decided.
 */

import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { JSON_OPTION } from '../call-setup.ts'
import {
  type Command,
  CommandError,
  type Exit,
  type Invocation,
  type Options,
  usageError,
} from '../command-line.ts'
import { scriptArgs } from '../connection.ts'
import { serverEnv } from '../home.ts'
import { formatTable, type Io, print, printJson, sayJson, sayTime, tell } from '../io.ts'
import type { DeskReply, DeskTask, ServeReport, ShownEntry, ShownRequest } from '../serve-file.ts'
import { firstReport } from '../server-process.ts'
import { isFile } from './play.ts'

const DEFAULT_LIMIT = 50

/** Reads the words after the file into the task of the other process. */
const ACTIONS: Readonly<Record<string, (id: string | undefined, options: Options) => DeskTask>> = {
  list: (id, options) => {
    refuseId(id)
    const limit = options.number('limit') ?? DEFAULT_LIMIT
    if (!Number.isInteger(limit) || limit < 1)
      throw usageError('--limit must be a whole number of at least 1')
    return { action: 'list', label: options.flag('closed') ? 'closed' : 'open', limit }
  },
  show: (id) => ({ action: 'show', id: needId(id) }),
  verify: (id, options) => {
    refuseId(id)
    const head = options.text('head')
    return { action: 'verify', ...(head !== undefined && { head: readHead(head) }) }
  },
  export: (id) => {
    refuseId(id)
    return { action: 'export' }
  },
  approve: (id, options) => decision(true, id, options),
  deny: (id, options) => decision(false, id, options),
}

export const approvalsCommand: Command = {
  name: 'approvals',
  usage: 'list | show | verify | export | approve | deny <file> [id]',
  summary: 'lists and decides requests for approval, and checks their record',
  details: [
    'The file exports a server that uses `createApprovals`, as for `rondo play`, with a store in SQLite or PostgreSQL; a store in memory exists only in the process that serves it. The command serves nothing and runs no task: a task whose request was decided continues in the process that serves the store.',
    'The exit code is 1 if the record has problems, or if nothing was changed.',
  ],
  table: {
    name: 'action',
    rows: {
      list: 'lists the open requests, the oldest first',
      show: 'shows a request, and what the record says about it',
      verify: 'checks the record: its order, its signatures, and that nothing is missing',
      export:
        'prints the record as lines of JSON: first `{ "tenant", "keys" }`, then an entry each. `verifyRecord` of `@rondo/approvals` checks it elsewhere',
      'approve, deny':
        'decides as an operator, which the record says; only with `createApprovals({ operators: true })`',
    },
  },
  json: '`{ "requests" }`, `{ "request", "history" }`, `{ "tenant", "keys", "entries", "first", "head", "problems" }`, or `{ "kind", "message", "state" }` with the kind `decided`, `counted` (a vote that needs more) or `refused`',
  see: 'docs/guide/approvals.md',
  options: {
    closed: { type: 'boolean', help: 'list: the closed requests instead' },
    limit: { type: 'string', value: 'N', help: `list: number of requests (default: ${DEFAULT_LIMIT})` },
    head: {
      type: 'string',
      value: 'N:HASH',
      help: 'verify: an entry that the log has named; the record must contain it',
    },
    as: { type: 'string', value: 'NAME', help: 'approve, deny: your name, for the record' },
    note: { type: 'string', value: 'TEXT', help: 'approve, deny: a note, for the record' },
    'show-note': {
      type: 'boolean',
      help: 'approve, deny: lets the caller see the note, if the tool passes notes on',
    },
    ...JSON_OPTION,
  },
  async run(invocation) {
    const { io, options } = invocation
    const [action, file, id, ...others] = invocation.words
    const read = action !== undefined && Object.hasOwn(ACTIONS, action) ? ACTIONS[action] : undefined
    if (read === undefined) throw usageError(`Name an action: ${Object.keys(ACTIONS).join(', ')}`)
    if (file === undefined) throw usageError('Name a file that exports a server')
    if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
    const task = read(id, options)
    const path = resolve(io.cwd, file)
    if (!isFile(path)) throw usageError(`No such file: ${path}`)
    return say(invocation, await runIn(io, path, task))
  },
}

function needId(id: string | undefined): string {
  if (id === undefined) throw usageError('Name the id of a request: rondo approvals list shows it')
  return id
}

function refuseId(id: string | undefined): void {
  if (id !== undefined) throw usageError(`Unexpected argument "${id}"`)
}

function decision(approve: boolean, id: string | undefined, options: Options): DeskTask {
  const operator = options.text('as')?.trim()
  if (operator === undefined || operator === '') throw usageError('Name yourself for the record: --as NAME')
  const text = options.text('note')
  const show = options.flag('show-note')
  return {
    action: 'decide',
    id: needId(id),
    approve,
    operator,
    ...(text !== undefined && { note: { text, show } }),
  }
}

function readHead(text: string): { seq: number; hash: string } {
  const [, seq, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? []
  if (seq === undefined || hash === undefined)
    throw usageError('--head takes the number and the hash of an entry, as the log names them: 7:9f86d0…')
  return { seq: Number(seq), hash }
}

type Report = Extract<ServeReport, { kind: 'approvals' | 'failed' }>

async function runIn(io: Io, path: string, task: DeskTask): Promise<DeskReply> {
  const child = spawn(process.execPath, [...scriptArgs(path, ['approvals', JSON.stringify(task)])], {
    cwd: io.cwd,
    env: { ...serverEnv(io) },
    stdio: ['ignore', 2, 2, 'ipc'],
  })
  const stop = (): void => void child.kill('SIGKILL')
  io.signal.addEventListener('abort', stop, { once: true })
  child.on('message', (report: ServeReport | null) => {
    if (report?.kind !== 'exported') return
    for (const line of report.lines) print(io, sayJson(line, io.stdout, 0))
  })
  try {
    const report = await firstReport<Report>(child, ['approvals', 'failed'])
    if (report.kind === 'approvals') return report.reply
    throw new CommandError('failed', `Cannot use the approvals of ${path}:\n${report.message}`)
  } finally {
    io.signal.removeEventListener('abort', stop)
    stop()
  }
}

function say({ io, options }: Invocation, reply: DeskReply): Exit {
  const asJson = options.flag('json')
  switch (reply.kind) {
    case 'list':
      if (asJson) printJson(io, { requests: reply.requests })
      else if (reply.requests.length === 0) tell(io, 'No requests.')
      else print(io, formatTable(reply.requests.map(toRow)))
      return 'done'
    case 'show':
      if (reply.request === undefined) throw new CommandError('failed', 'There is no such request')
      if (asJson) printJson(io, { request: reply.request, history: reply.history })
      else print(io, formatTable([...toRows(reply.request), ...reply.history.map(toHistoryRow)]))
      return 'done'
    case 'verify': {
      const { entries, head, problems } = reply.verification
      if (asJson) printJson(io, { tenant: reply.tenant, keys: reply.keys, ...reply.verification })
      else {
        for (const problem of problems) print(io, `${problem}.`)
        const end = head === undefined ? '' : ` The last one is ${head.seq}:${head.hash}`
        print(io, `${entries} entries, ${problems.length === 0 ? 'no problems' : 'not whole'}.${end}`)
      }
      return problems.length === 0 ? 'done' : 'failed'
    }
    case 'exported':
      return 'done'
    case 'decided':
      if (asJson) printJson(io, { ...reply.outcome })
      else tell(io, reply.outcome.message)
      return reply.outcome.kind === 'refused' ? 'failed' : 'done'
  }
}

const toRow = ({ id, state, tool, from, until, message }: ShownRequest): string[] => [
  id,
  state,
  tool,
  from.join(', '),
  sayTime(until),
  message,
]

function toRows(request: ShownRequest): string[][] {
  return Object.entries(request).flatMap(([name, value]) =>
    value === undefined
      ? []
      : [
          [
            name,
            name === 'until' || name === 'createdAt' || name === 'closedAt'
              ? sayTime(value as number)
              : text(value),
          ],
        ],
  )
}

const toHistoryRow = ({ seq, at, happening }: ShownEntry): string[] => [
  `entry ${seq}`,
  `${sayTime(at)} ${happening === undefined ? 'sealed with a key that is gone' : text(happening)}`,
]

const text = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))
