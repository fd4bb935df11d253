/**
 * Prompts in the terminal: drawn on stderr, read from stdin. Ctrl-C, Escape, Ctrl-D and a closed terminal dismiss the
 * prompt; the caller decides what that means. A signal ends it. All text is cleaned here, whoever wrote it.
 *
 * Letters do nothing in a menu: whoever types an answer there must not choose something with it.
 */

import { isCancel, log, multiselect, S_BAR, select, text, updateSettings } from '@clack/prompts'
import { oneLine } from 'rondo/internal'
import { type Io, terminalText } from '../io.ts'

/** Thrown when the user dismisses a prompt. */
export class Dismissed extends Error {
  constructor() {
    super('A prompt was dismissed')
    this.name = 'Dismissed'
  }
}

export interface Choice<T> {
  readonly value: T
  readonly label: string
  readonly hint?: string
}

export interface Terminal {
  /** Prints a message, marked so that it differs from the prompts. */
  say(words: string, kind?: 'info' | 'warn' | 'error' | 'plain'): void
  /** `check` returns what is wrong with the input, or undefined. */
  line(message: string, start: string, check: (input: string) => string | undefined): Promise<string>
  choose<T>(message: string, choices: readonly Choice<T>[], start: T): Promise<T>
  pick(message: string, choices: readonly Choice<string>[], start: readonly string[]): Promise<string[]>
  /** The number of keys pressed so far, without Enter. */
  keys(): number
}

/** End of input. */
const CTRL_D = '\u0004'
const VISIBLE_CHOICES = 10

/** `signal` dismisses the open prompt. */
export function createTerminal(io: Io, signal?: AbortSignal): Terminal {
  const { stdin, stderr, status } = io
  updateSettings({ aliases: { [CTRL_D]: 'cancel' } })
  let keys = 0
  const onKey = (_text: string, key: Key): void => {
    if (key.name !== 'return' && key.name !== 'enter') keys += 1
  }
  const onMenuKey = (text: string, key: Key): void => {
    // This listener is the first, and the prompt knows letters by their names.
    if (/^[a-z]$/i.test(key.name ?? '') && !key.ctrl && !key.meta) key.name = undefined
    else onKey(text, key)
  }
  const ask = async <T>(
    prompt: (ends: Ends) => Promise<T | symbol>,
    listener: typeof onKey = onMenuKey,
  ): Promise<T> => {
    // Between two prompts the terminal is not in raw mode, and Ctrl-C is a signal.
    io.signal.throwIfAborted()
    status.hide()
    const gone = new AbortController()
    const leave = (): void => gone.abort()
    stdin.once('end', leave)
    stdin.once('close', leave)
    stdin.on('keypress', listener)
    signal?.addEventListener('abort', leave)
    io.signal.addEventListener('abort', leave)
    if (signal?.aborted) leave()
    try {
      const value = await prompt({ input: stdin, output: stderr, signal: gone.signal })
      io.signal.throwIfAborted()
      if (isCancel(value)) throw new Dismissed()
      return value as T
    } finally {
      stdin.off('end', leave)
      stdin.off('close', leave)
      stdin.off('keypress', listener)
      signal?.removeEventListener('abort', leave)
      io.signal.removeEventListener('abort', leave)
    }
  }
  return {
    keys: () => keys,
    say(words, kind = 'plain') {
      status.hide()
      log[kind === 'plain' ? 'message' : kind](terminalText(words), { output: stderr })
    },
    line: (message, start, check) =>
      ask(
        (ends) =>
          text({
            ...ends,
            // This prompt draws no bar before further lines, and lines from a server must have one.
            message: terminalText(message).replaceAll('\n', `\n${S_BAR}  `),
            initialValue: terminalText(start).replaceAll('\n', ' '),
            validate: (input) => sayProblem(check(input ?? '')),
          }).then((value) => (isCancel(value) ? value : (value ?? ''))),
        onKey,
      ),
    choose: (message, choices, start) =>
      ask(
        (ends) =>
          select({
            ...ends,
            message: terminalText(message),
            options: choices.map((choice, index) => ({ ...cleanChoice(choice), value: index })),
            initialValue: choices.findIndex(({ value }) => value === start),
            maxItems: VISIBLE_CHOICES,
          }) as Promise<number | symbol>,
      ).then((index) => (choices[index] as Choice<never>).value),
    pick: (message, choices, start) =>
      ask<string[]>((ends) =>
        multiselect({
          ...ends,
          message: terminalText(message),
          options: choices.map(cleanChoice),
          initialValues: [...start],
          required: false,
          maxItems: VISIBLE_CHOICES,
        }),
      ),
  }
}

function cleanChoice<T>({ value, label, hint }: Choice<T>): Choice<T> {
  return { value, label: oneLine(label), ...(hint !== undefined && { hint: oneLine(hint) }) }
}

function sayProblem(problem: string | undefined): string | undefined {
  return problem === undefined ? undefined : oneLine(problem)
}

/** A key as Node reports it. */
interface Key {
  name?: string
  readonly ctrl?: boolean
  readonly meta?: boolean
}

interface Ends {
  readonly input: NodeJS.ReadStream
  readonly output: NodeJS.WriteStream
  readonly signal: AbortSignal
}
