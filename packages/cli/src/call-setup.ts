/** Shared parts of the commands that make or resume a call: options, connection, store, and who answers. */

import type { QuestionKind } from 'rondo'
import type { DriveOptions, FlowRequest, PendingCall } from 'rondo/client'
import { oneLine } from 'rondo/internal'
import { type Answerer, answerAtTerminal, answerFrom, answerLater } from './answers.ts'
import type { Exit, Invocation, OptionTable } from './command-line.ts'
import { CONNECT_OPTIONS, type Connection, openConnection, rootsOf } from './connection.ts'
import { createPushedAnswers, driveCall, type SavedCall } from './drive-call.ts'
import { homeOf, readSealKey, SEAL_OPTIONS } from './home.ts'
import { canAsk, sayJson, tell } from './io.ts'
import { createPendingStore, type PendingStore, type StoredCall } from './pending-store.ts'
import { type NamedTarget, readJsonObject, readTarget } from './words.ts'

export const JSON_OPTION: OptionTable = {
  json: { type: 'boolean', help: 'prints one JSON document on stdout' },
}

/** Options for answering questions without a person. */
export const SCRIPT_OPTIONS: OptionTable = {
  answers: { type: 'string', value: 'FILE|-', help: 'answers by key, as a JSON object; does not ask' },
  root: {
    type: 'string',
    multiple: true,
    value: 'FOLDER',
    help: 'a folder to send to a server that asks for roots',
  },
  'allow-secrets': { type: 'boolean', help: 'allows forms that ask for what looks like a secret' },
}

export const SERVER_OPTION: OptionTable = {
  server: { type: 'string', value: 'SERVER', help: 'the server to use, if not the one where the call began' },
}

export const CALL_OPTIONS: OptionTable = {
  ...JSON_OPTION,
  detach: {
    type: 'boolean',
    help: 'does not ask and does not wait for a task; the call becomes pending instead',
  },
  ...SCRIPT_OPTIONS,
  deadline: {
    type: 'string',
    value: 'SECONDS',
    help: 'timeout of the whole call, not counting the time you take to answer (default: 600)',
  },
  'max-rounds': { type: 'string', value: 'N', help: 'how often the server may ask (default: 10)' },
  'task-ttl': {
    type: 'string',
    value: 'SECONDS',
    help: 'requests a task with this lifetime, if the revision lets clients request tasks',
  },
  sampling: { type: 'boolean', help: 'lets the server request sampling; you type the completion' },
  ...SEAL_OPTIONS,
  ...CONNECT_OPTIONS,
}

/** For commands that resume a stored call. */
export const RESUME_OPTIONS: OptionTable = {
  ...SERVER_OPTION,
  ...CALL_OPTIONS,
}

/** The server at which to resume a stored call. */
export function targetOf({ io, options }: Invocation, stored: NamedTarget): NamedTarget {
  const given = options.text('server')
  return given === undefined ? stored : readTarget(given, io.cwd)
}

export function openStore({ io, options }: Invocation): PendingStore {
  return createPendingStore(homeOf(io), readSealKey(io, options))
}

interface CallDriver extends Connection {
  /** Starts a call, or resumes a stored one. */
  drive(request: FlowRequest, stored?: PendingCall): Promise<Exit>
}

/** Connects, for a new call or a stored one. */
export async function openDriver(
  invocation: Invocation,
  target: NamedTarget,
  stored?: StoredCall,
): Promise<CallDriver> {
  const { io, options } = invocation
  const store = openStore(invocation)
  const answerer = await chooseAnswerer(invocation)
  const accepts = stored?.accepts ?? acceptedKinds(invocation)
  const roots = rootsOf(io, options.list('root'))
  const file: SavedCall = {}
  const isTask = (): boolean => file.saved?.task !== undefined
  const answering = { answerer, target, kinds: accepts, roots, isTask }
  const { answers, unanswered } = createPushedAnswers(io, answering)
  const drive = driveOptions(invocation)
  io.status.start('connecting')
  const version = stored?.pending.protocolVersion
  const connecting = openConnection(io, target, options, { answers, version })
  const { client, close } = await connecting.finally(() => io.status.stop())
  const [json, detach] = [options.flag('json'), options.flag('detach')]
  const context = { io, client, store, target, answerer, accepts, unanswered, file, json, detach, drive }
  return {
    client,
    close,
    async drive(request, pending) {
      const exit = await driveCall(context, request, pending)
      if (exit === 'pending' && !json) remindCredentials(invocation)
      return exit
    },
  }
}

/** The printed commands continue the call, and the server requires the same credentials for it. */
function remindCredentials({ io, options }: Invocation): void {
  const names = [
    ...(options.text('bearer') === undefined ? [] : ['--bearer']),
    ...(options.list('header').length === 0 ? [] : ['--header']),
  ].join(' and ')
  if (names !== '') tell(io, `Credentials are not stored: pass ${names} to these commands too.`)
}

function driveOptions({ io, options }: Invocation): DriveOptions {
  const maxRounds = options.number('max-rounds')
  const deadline = options.number('deadline')
  const ttl = options.number('task-ttl')
  return {
    signal: io.signal,
    onProgress: ({ progress, total, message }) => io.status.progress(progress, total, message),
    ...(options.flag('server-log') && {
      onLog: ({ level, data }) => tell(io, `server ${oneLine(level)}: ${sayJson(data, io.stderr, 0)}`),
    }),
    ...(maxRounds !== undefined && { maxRounds }),
    ...(deadline !== undefined && { deadlineMs: deadline * 1000 }),
    ...(ttl !== undefined && { taskTtlMs: ttl * 1000 }),
  }
}

function acceptedKinds({ options }: Invocation): QuestionKind[] {
  return [
    'form',
    'url',
    ...(options.list('root').length > 0 ? (['roots'] as const) : []),
    ...(options.flag('sampling') ? (['sampling'] as const) : []),
  ]
}

export async function chooseAnswerer({ io, options }: Invocation): Promise<Answerer> {
  const file = options.text('answers')
  const detach = options.flag('detach')
  if (file !== undefined) return answerFrom(await readJsonObject(io, '--answers', file), detach)
  return detach || !canAsk(io) ? answerLater : answerAtTerminal(io)
}
