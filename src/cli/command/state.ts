/**
 * `rondo state`: shows the contents of a `requestState` to those who have the server's keys. Answers and results stay hidden
 * unless requested. A state that is not Rondo's is shown as far as anyone can read it.
 */

import { openEnvelope } from '../../seal/envelope.ts'
import { parseKeys } from '../../seal/key-ring.ts'
import { type Claims, decodeClaims, STATE_LIMITS } from '../../seal/state.ts'
import { JSON_OPTION, openStore } from '../call-setup.ts'
import { type Command, CommandError, type Exit, type Invocation, usageError } from '../command-line.ts'
import { readState } from '../doctor/tamper.ts'
import { formatTable } from '../format.ts'
import { homeOf } from '../home.ts'
import { print, printJson, readStdin, sayJson } from '../io.ts'
import { SEAL_OPTIONS, storedKeys } from '../local-keys.ts'
import { KEYS_OPTION, readKeysText } from './keys.ts'

export const stateCommand: Command = {
  name: 'state',
  usage: '<token|-> --audience NAME',
  summary: 'shows the contents of a requestState, given the server’s keys',
  details: [
    'The audience is the name of the server, unless it sets another. "-" reads the state from stdin. Without --keys and',
    'RONDO_KEYS, the command uses the key that it keeps for servers it runs from a file.',
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
