/**
 * The `rondo` command: finds the subcommand, parses its arguments, runs it, and turns whatever is thrown into one sentence
 * and an exit code.
 */

import { RondoError } from 'rondo'
import { PeerError } from 'rondo/client'
import { oneLine } from 'rondo/internal'
import { approvalsCommand } from './command/approvals.ts'
import { bridgeCommand } from './command/bridge.ts'
import {
  callCommand,
  promptCommand,
  promptsCommand,
  readCommand,
  resourcesCommand,
  toolsCommand,
} from './command/call.ts'
import { consoleCommand } from './command/console.ts'
import { deliverCommand } from './command/deliver.ts'
import { doctorCommand } from './command/doctor.ts'
import { keysCommand, stateCommand } from './command/keys.ts'
import { loginCommand, logoutCommand, whoamiCommand } from './command/login.ts'
import { abandonCommand, answerCommand, pendingCommand, resumeCommand } from './command/pending.ts'
import { playCommand } from './command/play.ts'
import { storeCommand } from './command/store.ts'
import { taskCommand } from './command/task.ts'
import { tasksCommand } from './command/tasks.ts'
import {
  type Command,
  CommandError,
  EXITS,
  type Exit,
  exitOf,
  readLine,
  sayError,
  suggest,
  usageError,
} from './command-line.ts'
import { VERSION } from './describe.ts'
import { helpOf, helpOn } from './help.ts'
import { type Io, print, printJson, tell } from './io.ts'

export const COMMANDS: readonly Command[] = [
  toolsCommand,
  promptsCommand,
  resourcesCommand,
  callCommand,
  promptCommand,
  readCommand,
  pendingCommand,
  answerCommand,
  resumeCommand,
  abandonCommand,
  taskCommand,
  tasksCommand,
  deliverCommand,
  approvalsCommand,
  storeCommand,
  loginCommand,
  logoutCommand,
  whoamiCommand,
  bridgeCommand,
  doctorCommand,
  stateCommand,
  keysCommand,
  playCommand,
  consoleCommand,
]

/** Runs the command line and returns the exit code. */
export async function main(args: readonly string[], io: Io): Promise<number> {
  try {
    return EXITS[await dispatch(args, io)].code
  } catch (error) {
    const exit: Exit = io.signal.aborted ? 'interrupted' : exitOf(error)
    io.status.stop()
    if (wantsJson(args)) printJson(io, { status: 'error', error: errorJson(error, exit) })
    else if (exit === 'interrupted') tell(io, 'Interrupted.')
    else
      tell(
        io,
        sentencesOf(error, exit, args)
          .map((line) => `rondo: ${line}`)
          .join('\n'),
      )
    return EXITS[exit].code
  }
}

async function dispatch(args: readonly string[], io: Io): Promise<Exit> {
  const [name, ...rest] = args
  if (name === undefined || name === '--help' || name === '-h') return show(io, helpOf(COMMANDS))
  if (name === '--version' || name === '-v') return show(io, VERSION)
  if (name === 'help') return show(io, rest[0] === undefined ? helpOf(COMMANDS) : helpOn(find(rest[0])))
  const command = find(name)
  const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest
  if (own.includes('--help') || own.includes('-h')) return show(io, helpOn(command))
  return command.run({ io, ...readLine(rest, command.options) })
}

function show(io: Io, text: string): Exit {
  print(io, text)
  return 'done'
}

function find(name: string): Command {
  const command = COMMANDS.find((one) => one.name === name)
  if (command === undefined)
    throw usageError(
      `Unknown command "${name}"${suggest(
        name,
        COMMANDS.map((one) => one.name),
      )}`,
    )
  return command
}

function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  return (end < 0 ? args : args.slice(0, end)).includes('--json')
}

/** Two lines: the problem, and on the second line the remedy. */
function sentencesOf(error: unknown, exit: Exit, args: readonly string[]): string[] {
  if (exit === 'fault') return [error instanceof Error ? (error.stack ?? error.message) : String(error)]
  const { message, advice } = sayError(
    error as Error,
    args.find((word) => /^https?:/i.test(word)),
  )
  // Parts of the message may come from a server, which must not be able to imitate a line of ours.
  const line = oneLine(message)
  const said = error instanceof CommandError ? line : line.replace(/^\[(\w+)\] (.*)$/s, '$2 [$1]')
  return advice === undefined ? [said] : [said, oneLine(advice)]
}

function errorJson(error: unknown, exit: Exit): Record<string, unknown> {
  const message = error instanceof Error ? error.message : String(error)
  return {
    exit: EXITS[exit].code,
    ...(error instanceof RondoError && { code: error.code }),
    message,
    ...(error instanceof PeerError && { peer: error.peer }),
    ...(error instanceof RondoError && error.code === 'PEER_HTTP' && { http: error.data }),
  }
}
