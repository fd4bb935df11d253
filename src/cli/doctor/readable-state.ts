/**
 * What anybody who holds a `requestState` can read in it: JSON, JSON in base64, JSON in one part of several with dots
 * between them (signed, perhaps), or plain text. A state that shows none of these may still be readable in a way that is
 * not looked for here.
 */

export interface Readable {
  readonly how: 'json' | 'base64' | 'part' | 'text'
  readonly value: unknown
  /** The state with other bytes in place of those read; the rest of it stays. */
  write(text: string): string
}

export function readState(state: string): Readable | undefined {
  const plain = parse(state)
  if (plain !== undefined) return { how: 'json', value: plain, write: (text) => text }
  const whole = decode(state)
  if (whole !== undefined) return { how: 'base64', value: whole, write: (text) => encodeLike(state, text) }
  const parts = state.split('.')
  for (const [index, part] of parts.entries()) {
    const value = parts.length > 1 ? decode(part) : undefined
    // The head of a JWT says nothing; what follows does.
    if (value === undefined || (isJwtHead(value) && parts.length > index + 1)) continue
    const write = (text: string) =>
      parts.map((one, i) => (i === index ? encodeLike(one, text) : one)).join('.')
    return { how: 'part', value, write }
  }
  return looksLikeText(state) ? { how: 'text', value: state, write: (text) => text } : undefined
}

function decode(text: string): unknown {
  if (text.length < 4 || !/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) return undefined
  const value = parse(Buffer.from(text, 'base64').toString('utf8'))
  return typeof value === 'object' ? value : undefined
}

function encodeLike(original: string, text: string): string {
  const bytes = Buffer.from(text)
  if (original.endsWith('=') || /[+/]/.test(original)) return bytes.toString('base64')
  return bytes.toString('base64url')
}

function isJwtHead(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'alg' in value
}

/** Short words with marks between them. */
function looksLikeText(state: string): boolean {
  if (!/^[\x20-\x7e]+$/.test(state) || !/[ ,;&=:|]/.test(state.replace(/=+$/, ''))) return false
  return state.split(/[ ,;&=:|]/).every((word) => word.length <= 24)
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) ?? undefined
  } catch {
    return undefined
  }
}

/** When a readable state says that it ends, in ms since the epoch; undefined if it does not say. */
export function expiryOf(value: unknown): number | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  for (const [name, time] of Object.entries(value)) {
    if (!/^(exp|expires|expiry|expires_?at|expiration|valid_?until)$/i.test(name)) continue
    const at = typeof time === 'string' ? Date.parse(time) : time
    if (typeof at !== 'number' || !Number.isFinite(at)) continue
    return at < 1e11 ? at * 1000 : at
  }
  return undefined
}
