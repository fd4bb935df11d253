/**
 * The built `rondo` command, or another program, in a real pseudo-terminal: what it draws, and keys to press. Standard
 * output goes to a file, so that a test can tell results from what was only displayed.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { spawn } from '@lydell/node-pty'
import { CLI } from './run-cli.ts'

export const KEY = {
  enter: '\r',
  down: '\u001b[B',
  up: '\u001b[A',
  ctrlC: '\u0003',
  ctrlD: '\u0004',
  space: ' ',
}

interface Ended {
  readonly code: number
  readonly stdout: string
  /** The text on the screen, without control sequences. */
  readonly screen: string
  /** The text on the screen, as it was written. */
  readonly drawn: string
}

export interface TerminalSession {
  /** Waits until this is drawn, after whatever was waited for last. */
  see(text: string): Promise<void>
  press(...keys: string[]): void
  signal(name: 'SIGINT' | 'SIGTERM'): void
  /** Waits for the end. */
  end(): Promise<Ended>
  close(): void
}

const PATIENCE_MS = 120_000
/** The last output may arrive after the process has ended. */
const LAST_WORDS_MS = 2000

export function openTerminal(
  args: readonly string[],
  env: Record<string, string>,
  program = CLI,
): TerminalSession {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-terminal-'))
  const file = join(folder, 'stdout')
  const script = 'out=$1; shift; exec "$@" > "$out"'
  const pty = spawn('sh', ['-c', script, 'sh', file, process.execPath, program, ...args], {
    name: 'xterm-256color',
    cols: 100,
    rows: 40,
    env,
  })
  let drawn = ''
  let seen = 0
  let code: number | undefined
  const listeners = new Set<() => void>()
  const wake = (): void => {
    for (const listener of listeners) listener()
  }
  pty.onData((data) => {
    drawn += data
    wake()
  })
  let isOver = false
  pty.onExit(({ exitCode }) => {
    code = exitCode
    wake()
    setTimeout(() => {
      isOver = true
      wake()
    }, LAST_WORDS_MS)
  })
  const screen = (): string => stripVTControlCharacters(drawn)
  const until = (done: () => boolean, what: () => string): Promise<void> =>
    new Promise((resolve, reject) => {
      const fail = (): void => reject(new Error(`${what()}\n${screen().slice(-2000)}`))
      const stop = (settle: () => void): void => {
        listeners.delete(look)
        clearTimeout(timer)
        settle()
      }
      const timer = setTimeout(() => stop(fail), PATIENCE_MS)
      const look = (): void => {
        if (done()) stop(resolve)
        else if (isOver) stop(fail)
      }
      listeners.add(look)
      look()
    })
  return {
    async see(text) {
      await until(
        () => screen().indexOf(text, seen) >= 0,
        () => `"${text}" was not drawn${code === undefined ? '' : `; the command ended with ${code}`}`,
      )
      seen = screen().indexOf(text, seen) + text.length
    },
    press(...keys) {
      for (const key of keys) pty.write(key)
    },
    signal: (name) => pty.kill(name),
    async end() {
      await until(
        () => code !== undefined,
        () => 'The command did not end',
      )
      return { code: code ?? -1, stdout: readFileSync(file, 'utf8'), screen: screen(), drawn }
    },
    close() {
      if (code === undefined) pty.kill('SIGKILL')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** Chooses to answer, and types into the one text field of a form, which sends it. */
export async function fillIn(terminal: TerminalSession, field: string, value: string): Promise<void> {
  await terminal.see('What do you want to do?')
  terminal.press(KEY.enter)
  await terminal.see(`${field} (text)`)
  terminal.press(value, KEY.enter)
}
