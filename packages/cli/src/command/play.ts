/**
 * `rondo play`: serves a file that exports a server, and reloads it whenever a file in its folder changes. Open calls survive
 * a reload, because the keys stay the same. A file that fails is reported, and loaded again after the next change.
 */

import type { ChildProcess } from 'node:child_process'
import { statSync, watch } from 'node:fs'
import { dirname, resolve, sep } from 'node:path'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, readPort, usageError } from '../command-line.ts'
import { scriptArgs } from '../connection.ts'
import { serverEnv } from '../home.ts'
import { type Io, printJson, tell } from '../io.ts'
import type { ServeReport } from '../serve-file.ts'
import { endProcess, firstReport, startProcess } from '../server-process.ts'

export const playCommand: Command = {
  name: 'play',
  usage: '<file>',
  summary: 'serves a file that exports a server, and reloads it on change',
  details: [
    'The file exports a server of Rondo or an `McpServer` of the official SDK, or a function that returns one. It runs in development mode, unless it says `dev: false`: handlers run twice per round, and the client sees why a tool failed.',
    'If the file cannot be loaded, the command says why and waits for the next change; with `--no-watch` it exits with 1. If the port is in use, it exits with 6.',
  ],
  options: {
    port: { type: 'string', value: 'N', help: 'the port (default: 3000); 0 picks a free one' },
    host: { type: 'string', value: 'ADDRESS', help: 'the address to listen on (default: 127.0.0.1)' },
    'no-watch': { type: 'boolean', help: 'does not reload on change' },
    ...JSON_OPTION,
  },
  async run({ io, words, options }) {
    const [file, ...others] = words
    if (file === undefined || others.length > 0) throw usageError('Name one file that exports a server')
    const path = resolve(io.cwd, file)
    if (!isFile(path)) throw usageError(`No such file: ${path}`)
    const player = createPlayer({
      ...{ io, path, json: options.flag('json'), watches: !options.flag('no-watch') },
      host: options.text('host') ?? '127.0.0.1',
      port: readPort(options) ?? 3000,
      command: (entrance) => scriptArgs(path, entrance),
      env: serverEnv(io),
    })
    const stopWatching = options.flag('no-watch') ? () => {} : watchSources(path, () => player.reload())
    const stopped = new Promise<void>((done) => {
      io.signal.addEventListener('abort', () => done(), { once: true })
    })
    try {
      const started = await Promise.race([player.start(), stopped.then(() => 'serving' as const)])
      if (started === 'unusable') return 'unreachable'
      if (started === 'failed' && options.flag('no-watch')) return 'failed'
      await stopped
    } finally {
      stopWatching()
      await player.stop()
    }
    tell(io, 'Stopped.')
    return 'done'
  },
}

export function isFile(path: string): boolean {
  try {
    return statSync(path).isFile()
  } catch {
    return false
  }
}

interface PlayerOptions {
  readonly io: Io
  readonly path: string
  readonly host: string
  readonly port: number
  readonly json: boolean
  readonly watches: boolean
  readonly command: (entrance: readonly string[]) => readonly string[]
  readonly env: Readonly<Record<string, string>>
}

type Start = Extract<ServeReport, { kind: 'listening' | 'failed' | 'unusable' }>

/** `unusable`: the address is, and no change of the file helps. */
type Started = 'serving' | 'failed' | 'unusable'

interface Player {
  start(): Promise<Started>
  reload(): void
  stop(): Promise<void>
}

/**
 * Runs the server in a process of its own, one at a time: the old process has released the port before the new one starts.
 * Changes during a start lead to one more start.
 */
function createPlayer(options: PlayerOptions): Player {
  const { io, host } = options
  let { port } = options
  let child: ChildProcess | undefined
  let turn: Promise<unknown> = Promise.resolve()
  let waiting = false
  let stopped = false

  const end = async (): Promise<void> => {
    const old = child
    child = undefined
    if (old !== undefined) await endProcess(old)
  }
  const start = async (): Promise<Started> => {
    if (stopped) return 'serving'
    const started = startProcess(options.command(['http', host, String(port)]), io.cwd, options.env)
    child = started
    const report = await firstReport<Start>(started, ['listening', 'failed', 'unusable'])
    // Stopped in the meantime; `stop` waits for its end.
    if (child !== started) return 'serving'
    if (report.kind === 'failed') {
      // The file may have opened a port or started a timer before it failed.
      await end()
      tell(io, `Cannot serve ${options.path}:\n${report.message}`)
      if (options.watches) tell(io, 'Waiting for the file to change; Ctrl-C stops.')
      return 'failed'
    }
    if (report.kind === 'unusable') {
      await end()
      tell(io, `rondo: ${inOptions(report.message)}`)
      return 'unusable'
    }
    started.once('exit', (code, signal) => {
      if (child !== started) return
      child = undefined
      tell(io, `The server of ${options.path} exited (${signal ?? `exit code ${code}`}).`)
    })
    port = report.port
    if (options.json) printJson(io, { url: report.url, file: options.path })
    else tell(io, `Serving ${options.path} at ${report.url}`)
    return 'serving'
  }
  // A second signal ends this process at once; the server must not outlive it.
  process.once('exit', () => child?.kill('SIGKILL'))
  const inTurn = <T>(run: () => Promise<T>): Promise<T> => {
    const next = turn.then(run)
    turn = next.catch(() => {})
    return next
  }
  return {
    start: () => inTurn(start),
    reload() {
      if (waiting || stopped) return
      waiting = true
      void inTurn(async () => {
        waiting = false
        if (stopped) return
        tell(io, 'A file changed; reloading.')
        await end()
        await start()
      })
    },
    async stop() {
      stopped = true
      // Does not wait for its turn: a start that hangs is ended too.
      await end()
      await turn
    },
  }
}

/** A sentence about `listen`, with the options of this command. */
function inOptions(message: string): string {
  return message
    .replace('with PORT or listen({ port })', 'with --port N')
    .replace('with listen({ host })', 'with --host ADDRESS')
}

const SOURCES = /\.(?:[cm]?[jt]s|[jt]sx|json)$/
/** No server imports its tests. */
const TESTS = /\.(?:test|spec)\.[^.]+$/
const SETTLE_MS = 120

/** Calls `changed` shortly after the last change of a source file beside the given one. */
export function watchSources(path: string, changed: () => void): () => void {
  let timer: NodeJS.Timeout | undefined
  const watcher = watch(dirname(path), { recursive: true }, (_event, name) => {
    if (name === null || !isSource(name)) return
    clearTimeout(timer)
    timer = setTimeout(changed, SETTLE_MS)
  })
  watcher.on('error', () => {})
  return () => {
    clearTimeout(timer)
    watcher.close()
  }
}

export function isSource(name: string): boolean {
  const parts = name.split(sep)
  return (
    SOURCES.test(name) &&
    !TESTS.test(name) &&
    !parts.some((part) => part === 'node_modules' || part.startsWith('.'))
  )
}
