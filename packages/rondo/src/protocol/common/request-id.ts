/**
 * The id of a request that is refused unparsed: its JSON is broken, too deep, too heavy, too long or not UTF-8. Without the id no
 * client could tell which of its calls failed, and over stdio that call would hang (N3).
 *
 * Reads the bytes as they pass, follows strings and brackets only, and keeps nothing but one member. A message that names two
 * ids, or that is not a request, has none.
 */

import type { RequestId } from '../call.ts'

export function isRequestId(value: unknown): value is RequestId {
  return typeof value === 'string' || Number.isSafeInteger(value)
}

export interface IdReader {
  push(bytes: Uint8Array): void
  /** The id, as far as the message has been read. */
  id(): RequestId | null
}

const QUOTE = 34
const COMMA = 44
const COLON = 58
const OPEN_ARRAY = 91
const BACKSLASH = 92
const CLOSE_ARRAY = 93
const OPEN_OBJECT = 123
const CLOSE_OBJECT = 125

/** Bytes of an id, and of the name of a member. Longer ones are not read. */
const MAX_ID = 1_024

export function createIdReader(): IdReader {
  let depth = 0
  let inString = false
  let isEscaped = false
  let isObject = false
  /** The name of the member whose value is being read, at the top of the message, if it matters. */
  let name: 'id' | 'method' | undefined
  let token: number[] = []
  let ids: unknown[] = []
  let isRequest = false

  const endMember = (): void => {
    if (name === 'id') ids = [...ids.slice(0, 1), read(token)]
    if (name === 'method') isRequest = true
    name = undefined
    token = []
  }
  const keep = (c: number): void => {
    if (depth === 1 && token.length <= MAX_ID) token.push(c)
  }
  /** Returns true if the byte belongs to a name or a value. */
  const take = (c: number): boolean => {
    if (c === QUOTE) inString = true
    else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
      if (depth === 0) isObject = c === OPEN_OBJECT
      depth += 1
      return false
    } else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) {
      if (depth === 1) endMember()
      depth -= 1
      return false
    } else if (depth === 1 && c === COMMA) {
      endMember()
      return false
    } else if (depth === 1 && c === COLON) {
      name = nameOf(token)
      token = []
      return false
    }
    return true
  }

  return {
    push(bytes) {
      // With two ids it is decided that there is none.
      for (let i = 0; i < bytes.length && ids.length < 2; i++) {
        const c = bytes[i] as number
        if (inString) {
          if (isEscaped) isEscaped = false
          else if (c === BACKSLASH) isEscaped = true
          else if (c === QUOTE) inString = false
          keep(c)
        } else if (take(c)) keep(c)
      }
    },
    id() {
      const [id] = ids
      return isObject && isRequest && ids.length === 1 && isRequestId(id) ? id : null
    },
  }
}

/** The characters of "method" if each of them is escaped. */
const LONGEST_NAME = 38

/** The name of a member, if it matters. A message may have a hundred thousand others, so few of them are parsed. */
function nameOf(token: readonly number[]): 'id' | 'method' | undefined {
  const [from, to] = [token.indexOf(QUOTE), token.lastIndexOf(QUOTE)]
  if (to - from >= LONGEST_NAME) return undefined
  const text = String.fromCharCode(...token.slice(from, to + 1))
  const name = text.includes('\\') ? read(token) : text.slice(1, -1)
  return name === 'id' || name === 'method' ? name : undefined
}

const decoder = new TextDecoder()

function read(token: readonly number[]): unknown {
  if (token.length === 0 || token.length > MAX_ID) return undefined
  try {
    return JSON.parse(decoder.decode(Uint8Array.from(token)))
  } catch {
    return undefined
  }
}

/** The id of a request from its text or its bytes, without parsing the rest. */
export function readRequestId(message: string | Uint8Array): RequestId | null {
  const reader = createIdReader()
  reader.push(typeof message === 'string' ? new TextEncoder().encode(message) : message)
  return reader.id()
}
