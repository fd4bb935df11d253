/**
 * `rondo keys`: creates, checks and rotates the keys that seal `requestState`. Rotation has three steps, each rolled out to
 * every instance before the next: learn (old,new), mint (new,old), drop (new).
 *
 * `rondo state`: shows the contents of a `requestState` to those who have the server's keys. Answers and results stay hidden
 * unless requested. A state that is not Rondo's is shown as far as anyone can read it.
 */

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { generateKey, parseKeys } from 'rondo'
import { type Claims, decodeClaims, openEnvelope, STATE_LIMITS } from 'rondo/internal'
import { JSON_OPTION, openStore } from '../call-setup.ts'
import {
  type Command,
  CommandError,
  type Exit,
  type Invocation,
  type Options,
  type OptionTable,
  usageError,
} from '../command-line.ts'
import { readState } from '../doctor/tamper.ts'
import { homeOf, SEAL_OPTIONS, storedKeys, writeFile } from '../home.ts'
import { formatTable, type Io, print, printJson, readStdin, sayJson, tell } from '../io.ts'

export const KEYS_OPTION: OptionTable = {
  keys: { type: 'string', value: 'FILE', help: 'the file with the keys (default: RONDO_KEYS)' },
}

export const keysCommand: Command = {
  name: 'keys',
  usage: 'new | check | rotate learn|mint|drop',
  summary: 'creates, checks and rotates the keys of a server',
  table: {
    name: 'action',
    rows: {
      new: 'prints a key for RONDO_KEYS',
      check: 'lists the names of the keys and which one seals; never prints secrets',
      'rotate learn': 'adds a new key at the end, so that every instance can open what it will seal',
      'rotate mint': 'moves the last key to the front, so that it seals from now on',
      'rotate drop':
        'keeps only the first key; run it once the longest lifetime of a flow or a task has passed',
    },
  },
  see: 'docs/guide/05-keys.md',
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
  const removed = entries.slice(next.length).map((entry) => entry.split(':')[0])
  if (removed.length > 0) tell(io, `Kept ${ring.names[0]}, removed ${removed.join(', ')}.`)
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

function readKeysText(io: Io, options: Options): string {
  const file = options.text('keys')
  const text = file === undefined ? io.env.RONDO_KEYS : readFile(resolve(io.cwd, file))
  if (text === undefined || text.trim() === '') {
    throw usageError(
      file === undefined ? 'Name a file with --keys, or set RONDO_KEYS' : `${file} contains no key`,
    )
  }
  return text
}

export type Ring = ReturnType<typeof parseKeys>

/** The keys that were given, if any. */
export function ringOf(io: Io, options: Options): Ring | undefined {
  const isGiven = options.text('keys') !== undefined || (io.env.RONDO_KEYS ?? '').trim() !== ''
  return isGiven ? parseRing(readKeysText(io, options)) : undefined
}

function readFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw usageError(`Cannot read the keys: ${(error as Error).message}`)
  }
}

export const stateCommand: Command = {
  name: 'state',
  usage: '<token|-> --audience NAME',
  summary: 'shows the contents of a requestState, given the server’s keys',
  details: [
    'The audience is the name of the server, unless it sets another. `-` reads the state from stdin. Without `--keys` and RONDO_KEYS, the command uses the key that it keeps for servers it runs from a file.',
  ],
  options: {
    audience: { type: 'string', value: 'NAME', help: 'the service the state was sealed for' },
    ...KEYS_OPTION,
    content: { type: 'boolean', help: 'shows answers and results as well' },
    pending: { type: 'string', value: 'ID', help: 'uses the state of a pending call' },
    ...JSON_OPTION,
    ...SEAL_OPTIONS,
  },
  async run(invocation) {
    const { io, options } = invocation
    const token = await readToken(invocation)
    if (!token.startsWith('r1.')) return showForeign(invocation, token)
    const audience = options.text('audience')
    if (audience === undefined) throw usageError('Name the service that sealed the state: --audience NAME')
    const claims = open(keysOf(invocation), audience, token)
    const shown = describe(claims, options.flag('content'), io.now())
    if (options.flag('json')) printJson(io, shown)
    else print(io, formatTable(toRows(shown)))
    return 'done'
  },
}

/** The given keys, or else those of the servers that the command itself runs. */
function keysOf({ io, options }: Invocation): string {
  const isGiven = options.text('keys') !== undefined || (io.env.RONDO_KEYS ?? '').trim() !== ''
  const kept = isGiven ? undefined : storedKeys(homeOf(io))
  return kept ?? readKeysText(io, options)
}

async function readToken(invocation: Invocation): Promise<string> {
  const { io, options, words } = invocation
  const id = options.text('pending')
  if (id !== undefined) {
    const store = openStore(invocation)
    const { state } = store.load(store.find(id)).pending
    if (state === undefined) throw new CommandError('stored', 'This call has no state')
    return state
  }
  const [token, ...others] = words
  if (token === undefined || others.length > 0)
    throw usageError('Pass one requestState, "-" for stdin, or --pending ID')
  return token === '-' ? (await readStdin(io)).trim() : token
}

function showForeign({ io, options }: Invocation, token: string): Exit {
  const readable = readState(token)
  if (readable === undefined)
    throw new CommandError('failed', 'This state was not sealed by Rondo, and nothing in it is readable')
  if (options.flag('json')) printJson(io, { readable: readable.how, value: readable.value })
  else
    print(
      io,
      `This state was not sealed by Rondo, and anyone can read it:\n${sayJson(readable.value, io.stdout)}`,
    )
  return 'failed'
}

const REASONS = {
  size: 'it is too long',
  encoding: 'it is not a complete token',
  key: 'none of these keys sealed it',
  commitment: 'it was modified, or sealed for another audience, or with another secret of the same key name',
  tag: 'it was modified',
  shape: 'it was sealed by another version of Rondo',
} as const

function open(keys: string, audience: string, token: string): Claims & { readonly key: string } {
  const opened = openEnvelope(parseRing(keys), audience, token, STATE_LIMITS.maxBytes)
  if (opened.kind === 'refused')
    throw new CommandError('failed', `The state does not open: ${REASONS[opened.reason]}`)
  const claims = decodeClaims(opened.plaintext.toString('utf8'))
  if (claims === undefined) throw new CommandError('failed', `The state does not open: ${REASONS.shape}`)
  return { ...claims, key: opened.keyId }
}

function parseRing(keys: string): ReturnType<typeof parseKeys> {
  try {
    return parseKeys(keys)
  } catch (error) {
    throw usageError((error as Error).message)
  }
}

function describe(
  claims: Claims & { readonly key: string },
  content: boolean,
  now: number,
): Record<string, unknown> {
  const { journal, asked, issuedAt, roundExpires, flowExpires, ...rest } = claims
  return {
    ...rest,
    issued: new Date(issuedAt).toISOString(),
    roundEnds: new Date(roundExpires).toISOString(),
    flowEnds: new Date(flowExpires).toISOString(),
    expired: now >= Math.min(roundExpires, flowExpires),
    asked: Object.keys(asked),
    moves: journal.moves,
    entries: journal.entries.map((entry) => {
      const { kind, key, at, ...values } = entry
      return { kind, key, at: new Date(at).toISOString(), ...(content && values) }
    }),
    ...(journal.manual !== undefined && {
      manual: content ? journal.manual : `${journal.manual.length} characters`,
    }),
  }
}

function toRows(shown: Record<string, unknown>): string[][] {
  return Object.entries(shown).flatMap(([name, value]) => {
    if (value === undefined) return []
    if (name === 'entries' && Array.isArray(value))
      return value.map((entry) => ['entry', JSON.stringify(entry)])
    return [[name, typeof value === 'string' ? value : JSON.stringify(value)]]
  })
}
