/**
 * `rondo keys`: creates, checks and rotates the keys that seal `requestState`. Rotation has three steps, each rolled out to
 * every instance before the next: learn (old,new), mint (new,old), drop (new).
 */

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { generateKey, parseKeys } from '../../seal/key-ring.ts'
import { JSON_OPTION } from '../call-setup.ts'
import {
  type Command,
  CommandError,
  type Exit,
  type Invocation,
  type Options,
  type OptionTable,
  usageError,
} from '../command-line.ts'
import { writeFile } from '../home.ts'
import { type Io, print, printJson, tell } from '../io.ts'

export const KEYS_OPTION: OptionTable = {
  keys: { type: 'string', value: 'FILE', help: 'the file with the keys (default: RONDO_KEYS)' },
}

export const keysCommand: Command = {
  name: 'keys',
  usage: 'new | check | rotate learn|mint|drop',
  summary: 'creates, checks and rotates the keys of a server',
  details: [
    'new             prints a key for RONDO_KEYS',
    'check           lists the names of the keys and which one seals; never prints secrets',
    'rotate learn    adds a new key at the end, so that every instance can open what it will seal',
    'rotate mint     moves the last key to the front, so that it seals from now on',
    'rotate drop     keeps only the first key; run it once the longest lifetime of a flow or a task has passed',
  ],
  options: {
    name: { type: 'string', value: 'NAME', help: 'the name of the new key; random unless set' },
    ...KEYS_OPTION,
    write: { type: 'boolean', help: 'rotate: rewrites the file of --keys instead of printing' },
    ...JSON_OPTION,
  },
  async run(invocation) {
    const [action, step, ...others] = invocation.words
    if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
    if (action === 'rotate') return rotate(invocation, step)
    if (step !== undefined) throw usageError(`Unexpected argument "${step}"`)
    if (action === 'new') return makeKey(invocation)
    if (action === 'check') return check(invocation)
    throw usageError('Name the action: keys new, keys check, or keys rotate learn|mint|drop')
  },
}

function makeKey({ io, options }: Invocation): Exit {
  const key = newKey(options.text('name'))
  if (options.flag('json')) printJson(io, { key })
  else print(io, key)
  return 'done'
}

function newKey(name: string | undefined): string {
  try {
    return generateKey(name)
  } catch (error) {
    throw usageError((error as Error).message)
  }
}

function check({ io, options }: Invocation): Exit {
  const { names } = readRing(readKeysText(io, options))
  if (options.flag('json')) printJson(io, { seals: names[0], opens: names })
  else print(io, `seals with ${names[0]}, opens ${names.join(', ')}`)
  return 'done'
}

/** The error never contains any part of the keys. */
function readRing(text: string): ReturnType<typeof parseKeys> {
  try {
    return parseKeys(text)
  } catch (error) {
    throw new CommandError('failed', (error as Error).message)
  }
}

function rotate({ io, options }: Invocation, step: string | undefined): Exit {
  const text = readKeysText(io, options)
  readRing(text)
  const entries = text.split(/[\s,]+/).filter((entry) => entry !== '')
  const next = nextRing(entries, step, options.text('name'))
  const ring = readRing(next.join(','))
  const file = options.text('keys')
  if (options.flag('write')) {
    if (file === undefined) throw usageError('--write rewrites a file; name it with --keys')
    writeFile(resolve(io.cwd, file), `${next.join('\n')}\n`)
  } else if (!options.flag('json')) print(io, next.join(','))
  if (options.flag('json')) {
    const written = options.flag('write') ? {} : { keys: next.join(',') }
    printJson(io, { seals: ring.names[0], opens: ring.names, ...written })
  }
  tell(io, NEXT[step as keyof typeof NEXT])
  return 'done'
}

const NEXT = {
  learn: 'Roll this out to every instance, then: rondo keys rotate mint',
  mint: 'Roll this out. Once the longest lifetime of a flow or a task (a day by default) has passed: rondo keys rotate drop',
  drop: 'Roll this out. States sealed with the removed keys no longer open.',
}

function nextRing(entries: readonly string[], step: string | undefined, name: string | undefined): string[] {
  const last = entries.at(-1)
  switch (step) {
    case 'learn':
      return [...entries, newKey(name)]
    case 'mint':
      if (last === undefined || entries.length < 2)
        throw usageError('There is only one key. Run "rondo keys rotate learn" first')
      return [last, ...entries.slice(0, -1)]
    case 'drop':
      if (entries.length < 2) throw usageError('There is only one key; nothing to drop')
      return entries.slice(0, 1)
  }
  throw usageError('Name the step: keys rotate learn, mint or drop')
}

export function readKeysText(io: Io, options: Options): string {
  const file = options.text('keys')
  const text = file === undefined ? io.env.RONDO_KEYS : readFile(resolve(io.cwd, file))
  if (text === undefined || text.trim() === '') {
    throw usageError(
      file === undefined ? 'Name a file with --keys, or set RONDO_KEYS' : `${file} contains no key`,
    )
  }
  return text
}

function readFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw usageError(`Cannot read the keys: ${(error as Error).message}`)
  }
}
