/**
 * `rondo deliver`: tries a hook from the command line. Runs the file's own `server.deliver`, with its name, keys, store and
 * checks, in a process that serves nothing and runs no tasks: whichever process serves the store continues the task. Given the
 * address of a console, an instance of that console does it, which may have its store in memory.
 */

import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import type { EventDelivery } from 'rondo'
import { isRecord, LOOPBACK_NAMES } from 'rondo/internal'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, CommandError, usageError } from '../command-line.ts'
import { scriptArgs } from '../connection.ts'
import { sayDelivery } from '../console/event.ts'
import { serverEnv } from '../home.ts'
import { type Io, printJson, readStdin, tell } from '../io.ts'
import type { ServeReport } from '../serve-file.ts'
import { firstReport } from '../server-process.ts'
import { isFile } from './play.ts'

export const deliverCommand: Command = {
  name: 'deliver',
  usage: '<file> | <console> <hook id> <json>',
  summary: 'delivers an event to a hook, as the server of the file would',
  details: [
    'The file exports a server, as for `rondo play`; its own `server.deliver` runs, with its name, keys, store and checks. The command serves nothing and runs no task: the task continues in the process that serves the store. `-` reads the JSON from stdin.',
    'A store in memory exists only in the process that serves it. To reach it, serve the file with `rondo console`, and pass the address of the page as it was printed, with the token: http://127.0.0.1:3000/#… The token is sent to this machine only. `rondo play` has no such address.',
    'The exit code is 0 if the hook has the event, 6 if no console answers, and otherwise 1.',
  ],
  json: '`{ "kind", "problem" }`, as `server.deliver` returns it',
  see: 'docs/guide/time-and-events.md',
  options: JSON_OPTION,
  async run({ io, words, options }) {
    const [where, hook, given, ...others] = words
    if (where === undefined || hook === undefined || given === undefined || others.length > 0)
      throw usageError(
        'Name a file that exports a server or the address of a console, the id of a hook, and the event as JSON',
      )
    const deliver = /^https?:/i.test(where) ? throughConsole(where) : withFile(resolve(io.cwd, where))
    const event = given === '-' ? await readStdin(io) : given
    if (!isJson(event)) throw usageError('The event must be JSON, such as {"cents":500}')
    const delivery = await deliver(io, hook, event)
    if (options.flag('json')) printJson(io, delivery)
    else tell(io, sayDelivery(delivery))
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

type Deliver = (io: Io, hook: string, event: string) => Promise<EventDelivery>

function withFile(path: string): Deliver {
  if (!isFile(path)) throw usageError(`No such file: ${path}`)
  return (io, hook, event) => deliverIn(io, path, hook, event)
}

/** The token goes to this machine only: nowhere else is a console. */
function throughConsole(address: string): Deliver {
  const url = URL.canParse(address) ? new URL(address) : undefined
  // The page adds what it shows after a slash.
  const [token] = url?.hash.slice(1).split('/') ?? []
  if (url === undefined || url.protocol !== 'http:' || !LOOPBACK_NAMES.includes(url.hostname) || !token)
    throw usageError(
      'Name the file that exports the server, or the address of the page as "rondo console" printed it, with the token, such as http://127.0.0.1:3000/#…',
    )
  return (io, hook, event) => deliverAt(io, url.origin, token, hook, event)
}

async function deliverAt(
  io: Io,
  origin: string,
  token: string,
  hook: string,
  event: string,
): Promise<EventDelivery> {
  const request = {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ hook, event: JSON.parse(event) }),
    redirect: 'error',
    signal: io.signal,
  } as const
  const response = await fetch(`${origin}/api/deliveries`, request).catch((cause) => {
    throw new CommandError('unreachable', `No console answers at ${origin}: is it running?`, { cause })
  })
  if (response.status === 401)
    throw new CommandError(
      'failed',
      `The token is not that of the console at ${origin}: use the address that it printed`,
    )
  const text = await response.text()
  const reply: unknown = isJson(text) ? JSON.parse(text) : undefined
  if (response.ok && isRecord(reply) && typeof reply.kind === 'string') return reply as EventDelivery
  const reason = isRecord(reply) && typeof reply.error === 'string' ? reply.error : `HTTP ${response.status}`
  throw new CommandError('failed', `Cannot deliver at ${origin}: ${reason}`)
}

type Delivered = Extract<ServeReport, { kind: 'delivered' | 'failed' }>

async function deliverIn(io: Io, path: string, hook: string, event: string): Promise<EventDelivery> {
  const child = spawn(process.execPath, [...scriptArgs(path, ['deliver', hook, event])], {
    cwd: io.cwd,
    env: { ...serverEnv(io) },
    stdio: ['ignore', 2, 2, 'ipc'],
  })
  const stop = (): void => void child.kill('SIGKILL')
  io.signal.addEventListener('abort', stop, { once: true })
  try {
    const report = await firstReport<Delivered>(child, ['delivered', 'failed'])
    if (report.kind === 'delivered') return report.delivery
    throw new CommandError('failed', `Cannot deliver with ${path}:\n${report.message}`)
  } finally {
    io.signal.removeEventListener('abort', stop)
    stop()
  }
}
