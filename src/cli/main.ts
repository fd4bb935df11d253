/**
 * The `rondo` command: finds the command, reads its line, runs it, and turns whatever is thrown into one sentence and an
 * exit code.
 */

import { PeerError } from '../client/peer-error.ts'
import { RondoError } from '../errors.ts'
import { oneLine } from '../form/clean-text.ts'
import { abandonCommand } from './abandon.ts'
import { answerCommand } from './answer.ts'
import { callCommand } from './call.ts'
import type { Command } from './command.ts'
import { CommandError, exitOf, sayError, suggest, usageError } from './command-error.ts'
import { doctorCommand } from './doctor.ts'
import { EXITS, type Exit } from './exit-code.ts'
import { helpOf, helpOn } from './help.ts'
import { type Io, print, printJson, tell } from './io.ts'
import { keysCommand } from './keys.ts'
import { promptsCommand, resourcesCommand, toolsCommand } from './list.ts'
import { pendingCommand } from './pending.ts'
import { playCommand } from './play.ts'
import { promptCommand } from './prompt.ts'
import { readCommand } from './read.ts'
import { readLine } from './read-line.ts'
import { resumeCommand } from './resume.ts'
import { stateCommand } from './state.ts'
import { taskCommand } from './task.ts'
import { tasksCommand } from './tasks.ts'
import { VERSION } from './version.ts'

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
  doctorCommand,
  stateCommand,
  keysCommand,
  playCommand,
]

/** Gives the exit code. */
export async function main(args: readonly string[], io: Io): Promise<number> {
  try {
    return EXITS[await dispatch(args, io)].code
  } catch (error) {
    const exit: Exit = io.signal.aborted ? 'interrupted' : exitOf(error)
    io.status.stop()
    if (wantsJson(args)) printJson(io, { status: 'error', error: errorJson(error, exit) })
    else if (exit === 'interrupted') tell(io, 'Interrupted.')
    else tell(io, `rondo: ${sentenceOf(error, exit)}`)
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
      `There is no command "${name}"${suggest(
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

function sentenceOf(error: unknown, exit: Exit): string {
  if (exit === 'fault') return error instanceof Error ? (error.stack ?? error.message) : String(error)
  // Much of it may be a server's, and a line of a server must not pass for one of ours.
  const message = oneLine(sayError(error as Error))
  return error instanceof CommandError ? message : message.replace(/^\[(\w+)\] (.*)$/s, '$2 [$1]')
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
