/**
 * `rondo deliver`: tries a hook from the command line. Runs the file's own `server.deliver`, with its name, keys, store and
 * checks, in a process that serves nothing and runs no tasks: whichever process serves the store continues the task.
 */

import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import type { EventDelivery } from '../../index.ts'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, CommandError, usageError } from '../command-line.ts'
import { scriptArgs } from '../connection.ts'
import { serverEnv } from '../home.ts'
import { type Io, printJson, readStdin, tell } from '../io.ts'
import { firstReport, isFile } from './play.ts'

export const deliverCommand: Command = {
  name: 'deliver',
  usage: '<file> <hook id> <json>',
  summary: 'delivers an event to a hook, as the server of the file would',
  details: [
    'The file exports a server, as for "rondo play", with the store in which the task is. A store in memory is in the process',
    'that serves it, and cannot be reached from here. "-" reads the JSON from stdin.',
  ],
  options: JSON_OPTION,
  async run({ io, words, options }) {
    const [file, hook, given, ...others] = words
    if (file === undefined || hook === undefined || given === undefined || others.length > 0)
      throw usageError('Name a file that exports a server, the id of a hook, and the event as JSON')
    const path = resolve(io.cwd, file)
    if (!isFile(path)) throw usageError(`No such file: ${path}`)
    const event = given === '-' ? await readStdin(io) : given
    if (!isJson(event)) throw usageError('The event must be JSON, such as {"cents":500}')
    const delivery = await deliverIn(io, path, hook, event)
    if (options.flag('json')) printJson(io, delivery)
    else tell(io, say(delivery))
    return delivery.kind === 'accepted' ? 'done' : 'failed'
  },
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

async function deliverIn(io: Io, path: string, hook: string, event: string): Promise<EventDelivery> {
  const child = spawn(process.execPath, [...scriptArgs(path, ['deliver', hook, event])], {
    cwd: io.cwd,
    env: { ...serverEnv(io) },
    stdio: ['ignore', 2, 2, 'ipc'],
  })
  const stop = (): void => void child.kill('SIGKILL')
  io.signal.addEventListener('abort', stop, { once: true })
  try {
    const report = await firstReport(child)
    if (report.kind === 'delivered') return report.delivery
    const message = 'message' in report ? report.message : 'The file serves by itself'
    throw new CommandError('failed', `Cannot deliver with ${path}:\n${message}`)
  } finally {
    io.signal.removeEventListener('abort', stop)
    stop()
  }
}

function say(delivery: EventDelivery): string {
  switch (delivery.kind) {
    case 'accepted':
      return 'The hook has the event. Its task continues where the server runs.'
    case 'duplicate':
      return 'The hook had an event before, and keeps that one.'
    case 'closed':
      return 'The hook takes no event any more: its time is up, or its task has ended.'
    case 'rejected':
      return `The event was rejected, and the hook stays open: ${delivery.problem}`
    case 'unknown':
      return 'No hook has this id here. It is wrong or has expired, or the file uses other keys, another name or another store than the server that opened it.'
  }
}
