/**
 * JSON as text and as values of unknown shape: guards a text before `JSON.parse` sees it, narrows what was parsed, and
 * writes the canonical text of a value.
 *
 * A text that passes the guard is bounded and means the same to every parser (T8, T9, T10): limited depth and weight; no
 * duplicate key in an object, compared after escapes are resolved; no key `__proto__`, however it is escaped, because an author
 * may merge what was sent; no number that becomes infinite. Everything else that JSON allows passes. The scan follows only
 * brackets, commas and strings, and `JSON.parse` has the last word on syntax. It never throws and never recurses.
 *
 * The weight of a text is roughly what its value takes in memory, in bytes, and rather more than less: `[{},{}]` weighs twenty
 * times its length. It does not depend on texts before.
 */

export interface JsonLimits {
  /** How deep arrays and objects may nest. */
  readonly depth: number
  /** The weight of the whole text. */
  readonly weight: number
}

type JsonRefusal = 'syntax' | 'depth' | 'weight' | 'duplicate' | 'forbidden-key' | 'number'

interface Refused {
  readonly kind: 'refused'
  readonly reason: JsonRefusal
  readonly detail: string
}

export type Guarded = { readonly kind: 'ok'; readonly value: unknown; readonly weight: number } | Refused

/** Values that nest deeper than some thousand levels overflow the stack of whatever copies, checks or writes them. */
export const JSON_LIMITS: JsonLimits = { depth: 512, weight: 16 * 1_048_576 }

// Bytes that V8 needs, measured. A character takes two at most.
const OF_CHARACTER = 2
const OF_STRING = 16
const OF_VALUE = 16
const OF_ARRAY = 56
const OF_OBJECT = 64
/** A key where other objects of the text have the same keys up to this one, and share their hidden class. */
const OF_KEY = 8
/** Any other key. */
const OF_NEW_KEY = 200

const QUOTE = 34
const COMMA = 44
const ZERO = 48
const NINE = 57
const UPPER_E = 69
const OPEN_ARRAY = 91
const BACKSLASH = 92
const CLOSE_ARRAY = 93
const LOWER_E = 101
const OPEN_OBJECT = 123
const CLOSE_OBJECT = 125

const FORBIDDEN = '__proto__'

/** Objects with more keys than this keep them in a set; in smaller ones, keys are compared one by one. */
const FEW_KEYS = 12

/** True if arrays and objects nest deeper than this. Values nested some thousand levels deep cannot be written as JSON again. */
export function nestsDeeper(text: string, limit: number): boolean {
  // Every level has an opening and a closing bracket.
  if (text.length <= 2 * limit) return false
  let depth = 0
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (c === QUOTE) {
      i = endOfString(text, i + 1)
      if (i < 0) return false
    } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
      depth += 1
      if (depth > limit) return true
    } else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) depth -= 1
  }
  return false
}

export function parseGuarded(text: string, limits?: Partial<JsonLimits>): Guarded {
  const all = limits === undefined ? JSON_LIMITS : { ...JSON_LIMITS, ...limits }
  const scanned = typeof text === 'string' ? scan(text, all) : NOT_JSON
  if (scanned.kind === 'refused') return scanned
  try {
    const value: unknown = JSON.parse(text)
    if (scanned.mayOverflow && hasInfinite(value)) return INFINITE
    return { kind: 'ok', value, weight: scanned.weight }
  } catch {
    return NOT_JSON
  }
}

/** The weight of the value of a JSON text. */
export function weighJson(text: string): number {
  const scanned = scan(text, UNLIMITED)
  return scanned.kind === 'scanned' ? scanned.weight : OF_CHARACTER * text.length
}

const UNLIMITED: JsonLimits = { depth: Number.POSITIVE_INFINITY, weight: Number.POSITIVE_INFINITY }

interface Scanned {
  readonly kind: 'scanned'
  readonly weight: number
  /** True if a number of the text is so long, or has an exponent, that it may be infinite. */
  readonly mayOverflow: boolean
}

function scan(text: string, limits: JsonLimits): Scanned | Refused {
  open.begin(text)
  const scanned = follow(text, limits)
  open.end()
  return scanned
}

function follow(text: string, limits: JsonLimits): Scanned | Refused {
  const length = text.length
  let keyIsNext = false
  let weight = OF_CHARACTER * length
  let mayOverflow = false
  /** The earliest position at which the value that is being read begins. */
  let start = 0
  for (let i = 0; i < length; i++) {
    const c = text.charCodeAt(i)
    // White space, digits and colons: most of what is outside strings.
    if (c < QUOTE || (c > COMMA && c < UPPER_E)) continue
    if (c === QUOTE) {
      const end = endOfString(text, i + 1)
      if (end < 0) return NOT_JSON
      if (keyIsNext) {
        keyIsNext = false
        const refusal = open.key(i, end)
        if (refusal !== undefined) return refusal
      } else weight += OF_STRING
      i = end
      start = end
    } else if (c === COMMA) {
      keyIsNext = open.inObject()
      weight += OF_VALUE
      if (i - start > LONG_NUMBER) mayOverflow = true
      start = i
    } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
      keyIsNext = c === OPEN_OBJECT
      weight += keyIsNext ? OF_OBJECT : OF_ARRAY
      start = i
      if (open.push(keyIsNext) > limits.depth)
        return refuse('depth', `The text nests deeper than ${limits.depth} levels`)
    } else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) {
      open.pop()
      keyIsNext = false
      if (i - start > LONG_NUMBER) mayOverflow = true
      start = i
    } else if ((c === LOWER_E || c === UPPER_E) && isDigit(text.charCodeAt(i - 1))) mayOverflow = true
  }
  weight += open.weight
  if (weight > limits.weight) {
    return refuse(
      'weight',
      `The text would take about ${weight} bytes of memory; ${limits.weight} are allowed`,
    )
  }
  return { kind: 'scanned', weight, mayOverflow: mayOverflow || length - start > LONG_NUMBER }
}

/** Numbers with fewer characters and no exponent are finite. */
const LONG_NUMBER = 300

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE
}

/** True if a number in the value is infinite, as `1e999` is. Does not recurse. */
function hasInfinite(root: unknown): boolean {
  const open: unknown[] = [root]
  while (open.length > 0) {
    const value = open.pop()
    if (value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY) return true
    if (typeof value !== 'object' || value === null) continue
    for (const member of Object.values(value)) open.push(member)
  }
  return false
}

/**
 * The open containers and their keys, of the one text that is being scanned. All keys are on one stack, as a hash and a position
 * in the text: the keys of a child are popped before its parent gets another, so an object allocates nothing until it has many
 * keys. The stacks are kept for the next text, unless they have grown.
 */
class OpenContainers {
  #hashes: number[] = []
  #places: number[] = []
  #starts: number[] = []
  #sets: (Set<string> | undefined)[] = []
  #isObject: boolean[] = []
  /** The keys of each open object up to now, as one hash: objects with the same keys in the same order share a hidden class. */
  #shapes: number[] = []
  /** Shapes that this text has, by their last digits. Marked with the number of the text, so that it need not be cleared. */
  readonly #known = new Int32Array(KNOWN_SHAPES)
  #texts = 0
  #weight = 0
  #hasSets = false
  #text = ''
  #depth = 0
  #start = 0
  #size = 0

  begin(text: string): void {
    this.#text = text
    this.#texts = (this.#texts + 1) | 0
    this.#weight = 0
    this.#depth = 0
    this.#start = 0
    this.#size = 0
  }

  end(): void {
    this.#text = ''
    if (this.#hasSets) this.#sets = []
    this.#hasSets = false
    if (this.#places.length > MANY_KEYS) {
      this.#hashes = []
      this.#places = []
    }
  }

  /** The weight of the keys of the text. */
  get weight(): number {
    return this.#weight
  }

  inObject(): boolean {
    return this.#depth > 0 && this.#isObject[this.#depth - 1] === true
  }

  push(object: boolean): number {
    this.#start = this.#size
    this.#starts[this.#depth] = this.#start
    this.#sets[this.#depth] = undefined
    this.#isObject[this.#depth] = object
    this.#shapes[this.#depth] = 0
    return ++this.#depth
  }

  pop(): void {
    if (this.#depth === 0) return
    this.#size = this.#start
    this.#depth--
    this.#start = this.#depth === 0 ? 0 : (this.#starts[this.#depth - 1] ?? 0)
  }

  key(from: number, to: number): Refused | undefined {
    const text = this.#text
    let hash = hashKey(text, from + 1, to)
    const length = to - from - 1
    if (hash === ESCAPED || length === FORBIDDEN.length) {
      const key = readKey(text, from, to)
      if (key === FORBIDDEN) return refuse('forbidden-key', `The key "${key}" is not allowed`)
      if (hash === ESCAPED) hash = hashKey(key.replaceAll('\\', '/'), 0, key.length)
    }
    // Keys that are numbers are kept in a table of the object's own.
    this.#weight += this.#isKnown(hash) && !isDigit(text.charCodeAt(from + 1)) ? OF_KEY : OF_NEW_KEY
    if (!this.#isRepeated(hash, from, to)) return undefined
    return refuse('duplicate', `The key ${show(readKey(text, from, to))} occurs twice in one object`)
  }

  /** True if another object of the text has the same keys up to this one. */
  #isKnown(hash: number): boolean {
    const level = this.#depth - 1
    const shape = (Math.imul((this.#shapes[level] ?? 0) ^ hash, 0x9e3779b1) + hash) | 0
    this.#shapes[level] = shape
    const mark = shape ^ Math.imul(this.#texts, 0x85ebca6b)
    const place = (shape ^ (shape >>> 15)) & (KNOWN_SHAPES - 1)
    if (this.#known[place] === mark) return true
    this.#known[place] = mark
    return false
  }

  #isRepeated(hash: number, from: number, to: number): boolean {
    const text = this.#text
    const set = this.#sets[this.#depth - 1]
    if (set !== undefined) return set.size === set.add(readKey(text, from, to)).size
    for (let i = this.#start; i < this.#size; i++) {
      if (this.#hashes[i] === hash && readKeyAt(text, this.#places[i] ?? 0) === readKey(text, from, to))
        return true
    }
    this.#hashes[this.#size] = hash
    this.#places[this.#size++] = from
    if (this.#size - this.#start > FEW_KEYS) {
      const places = this.#places.slice(this.#start, this.#size)
      this.#sets[this.#depth - 1] = new Set(places.map((place) => readKeyAt(text, place)))
      this.#hasSets = true
    }
    return false
  }
}

/** A power of two. A text with more shapes is weighed as if some of them were new again. */
const KNOWN_SHAPES = 1_024

/** Texts with more keys than this on the stack do not keep it. */
const MANY_KEYS = 1_024

/** Scanning is synchronous and calls no code of others, so one is enough. */
const open = new OpenContainers()

/** Returns the index of the closing quote, or -1. Linear, because runs of backslashes between quotes do not overlap. */
function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start)
  while (end > start && text.charCodeAt(end - 1) === BACKSLASH) {
    let first = end - 1
    while (first > start && text.charCodeAt(first - 1) === BACKSLASH) first--
    if ((end - first) % 2 === 0) return end
    end = text.indexOf('"', end + 1)
  }
  return end
}

const ESCAPED = -1

/** Returns a small hash of the key, or ESCAPED if its escapes must be resolved before it can be compared. */
function hashKey(text: string, from: number, to: number): number {
  let hash = 0
  for (let i = from; i < to; i++) {
    const c = text.charCodeAt(i)
    if (c === BACKSLASH) return ESCAPED
    hash = (hash * 31 + c) & 0x3fffffff
  }
  return hash
}

function readKeyAt(text: string, from: number): string {
  return readKey(text, from, endOfString(text, from + 1))
}

/** Returns a key with a bad escape as written: `JSON.parse` will reject the text. */
function readKey(text: string, from: number, to: number): string {
  const raw = text.slice(from + 1, to)
  if (!raw.includes('\\')) return raw
  try {
    return JSON.parse(text.slice(from, to + 1)) as string
  } catch {
    return raw
  }
}

function refuse(reason: JsonRefusal, detail: string): Refused {
  return { kind: 'refused', reason, detail }
}

const INFINITE: Refused = {
  kind: 'refused',
  reason: 'number',
  detail: 'A number is too large: it is infinite as a double',
}

const NOT_JSON: Refused = { kind: 'refused', reason: 'syntax', detail: 'The text is not valid JSON' }

/** Escapes and shortens a key for a message, which may be logged. */
function show(key: string): string {
  return JSON.stringify(key.length > 64 ? `${key.slice(0, 64)}…` : key)
}

/** True for what JSON calls an object: neither null nor an array. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}

export function isText(value: unknown): value is string {
  return typeof value === 'string'
}

/** Milliseconds since the epoch. */
export function isTime(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value)
}

export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** Returns a copy without a prototype, each value narrowed, or undefined if one of them does not fit. */
export function toMap<T>(
  value: unknown,
  narrow: (member: unknown) => T | undefined,
): Record<string, T> | undefined {
  if (!isRecord(value)) return undefined
  const map: Record<string, T> = Object.create(null)
  for (const [key, member] of Object.entries(value)) {
    const narrowed = narrow(member)
    if (narrowed === undefined) return undefined
    map[key] = narrowed
  }
  return map
}

/** Nested deeper, a value is copied by way of its text. */
const MAX_COPY_DEPTH = 64

/** Returns a copy of a value that was read from JSON, without writing its text: much cheaper for the small values of a journal. */
export function copyParsed<T>(value: T): T {
  return copyAt(value, 0) as T
}

function copyAt(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (depth > MAX_COPY_DEPTH) return JSON.parse(JSON.stringify(value))
  if (Array.isArray(value)) {
    const list: unknown[] = []
    for (let i = 0; i < value.length; i++) list.push(copyAt(value[i], depth + 1))
    return list
  }
  const copy: Record<string, unknown> = {}
  for (const key of Object.keys(value)) {
    if (key === '__proto__') return JSON.parse(JSON.stringify(value))
    const member = (value as Record<string, unknown>)[key]
    if (member !== undefined) copy[key] = copyAt(member, depth + 1)
  }
  return copy
}

/** Deeper than any guarded input; reached only by a cycle. */
const MAX_FRAMES = 100_000

interface Frame {
  readonly container: readonly unknown[] | Readonly<Record<string, unknown>>
  /** The sorted keys of an object; undefined for an array. */
  readonly keys: readonly string[] | undefined
  next: number
}

/**
 * Returns the one text of a JSON value: equal values have equal text, whatever the order of their keys. The form is RFC
 * 8785, except that lone surrogates are accepted and written as escapes. Members that are undefined are omitted. What is
 * not JSON (NaN, a Date, a Map, a function, a cycle) is a TypeError: two different values must not have the same digest by
 * accident. It uses a stack of its own, so depth costs memory and never overflows.
 */
export function canonicalJson(value: unknown): string {
  const frames: Frame[] = []
  let text = enter(value, frames)
  for (let frame = frames.at(-1); frame !== undefined; frame = frames.at(-1)) {
    const { container, keys } = frame
    const index = frame.next++
    if (index === (keys ?? (container as readonly unknown[])).length) {
      text += keys === undefined ? ']' : '}'
      frames.pop()
      continue
    }
    if (index > 0) text += ','
    if (keys === undefined) {
      text += enter((container as readonly unknown[])[index], frames)
    } else {
      const key = keys[index] as string
      text += `${quote(key)}:${enter((container as Record<string, unknown>)[key], frames)}`
    }
  }
  return text
}

/** Returns the whole text of a leaf, or the opening bracket of a container, whose frame it pushes. */
function enter(value: unknown, frames: Frame[]): string {
  switch (typeof value) {
    case 'string':
      return quote(value)
    case 'number':
      if (!Number.isFinite(value)) throw new TypeError(`${value} is not JSON`)
      return String(value)
    case 'boolean':
      return String(value)
    case 'object':
      return value === null ? 'null' : enterContainer(value, frames)
    default:
      throw new TypeError(`a value of type ${typeof value} is not JSON`)
  }
}

/** Printable ASCII except the quote and the backslash: what JSON does not escape. */
const PLAIN = /^[ !#-[\]-~]*$/

/** The text as a JSON string. For long texts without escapes cheaper than `JSON.stringify`. */
export function quote(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text)
}

function enterContainer(value: object, frames: Frame[]): string {
  if (frames.length === MAX_FRAMES) throw new TypeError('the value contains itself')
  if (Array.isArray(value)) {
    frames.push({ container: value, keys: undefined, next: 0 })
    return '['
  }
  if (!isPlain(value)) throw new TypeError('an instance of a class is not JSON')
  const container = value as Record<string, unknown>
  frames.push({ container, keys: sortedKeys(container), next: 0 })
  return '{'
}

function sortedKeys(members: Readonly<Record<string, unknown>>): readonly string[] {
  const keys = Object.keys(members)
  let isSorted = true
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string
    if (members[key] === undefined) return keys.filter((name) => members[name] !== undefined).sort()
    if (i > 0 && key < (keys[i - 1] as string)) isSorted = false
  }
  return isSorted ? keys : keys.sort()
}

/** True for object literals and null-prototype objects, including those of another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

const PER_VALUE = 8
const DEEPEST = 64

/**
 * The size of a parsed JSON value: the characters of its strings and keys, plus 8 for every value. Does not recurse, and
 * stops at the limit, so that a hostile value costs no more than a large honest one. Deep nesting counts as infinite.
 */
export function measureJson(root: unknown, limit: number, maxDepth: number = DEEPEST): number {
  let size = 0
  const open: [value: unknown, depth: number][] = [[root, 0]]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const [value, depth] = next
    size += PER_VALUE
    if (typeof value === 'string') size += value.length
    else if (typeof value === 'object' && value !== null) {
      if (depth >= maxDepth) return Number.POSITIVE_INFINITY
      const keys = Object.keys(value)
      if (size + (open.length + keys.length) * PER_VALUE > limit) return Number.POSITIVE_INFINITY
      for (const key of keys) {
        size += key.length
        open.push([(value as Record<string, unknown>)[key], depth + 1])
      }
    }
    if (size + open.length * PER_VALUE > limit) return Number.POSITIVE_INFINITY
  }
  return size
}
