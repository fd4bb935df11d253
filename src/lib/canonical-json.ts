/**
 * One text per JSON value: equal values give equal text, whatever order their keys came in.
 *
 * The form is RFC 8785: no white space, keys sorted by UTF-16 code units, numbers and strings as JSON.stringify writes
 * them. Where the RFC gives up this goes on: a lone surrogate is written as its escape, so every string JSON can carry
 * has a text, and no two share one. -0 is 0. Members that are undefined are left out.
 *
 * It walks with its own stack, so depth costs memory and never overflows. What is not JSON (NaN, a Date, a Map, a
 * function, a cycle) is a TypeError: two different values must never meet in one digest by accident.
 */

/** Deeper than any guarded input; reached only by a cycle. */
const MAX_DEPTH = 100_000

interface Frame {
  readonly close: ']' | '}'
  readonly keys: readonly string[] | undefined
  readonly values: readonly unknown[]
  next: number
}

export function canonicalJson(value: unknown): string {
  const frames: Frame[] = []
  let text = enter(value, frames)
  for (let frame = frames.at(-1); frame !== undefined; frame = frames.at(-1)) {
    const index = frame.next++
    if (index === frame.values.length) {
      text += frame.close
      frames.pop()
      continue
    }
    if (index > 0) text += ','
    if (frame.keys !== undefined) text += `${JSON.stringify(frame.keys[index])}:`
    text += enter(frame.values[index], frames)
  }
  return text
}

/** The whole text of a leaf, or the opening bracket of a container whose frame it pushes. */
function enter(value: unknown, frames: Frame[]): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(value)
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

function enterContainer(value: object, frames: Frame[]): string {
  if (frames.length === MAX_DEPTH) throw new TypeError('the value contains itself')
  if (Array.isArray(value)) {
    frames.push({ close: ']', keys: undefined, values: value, next: 0 })
    return '['
  }
  if (!isPlain(value)) throw new TypeError('an instance of a class is not JSON')
  const members = value as Record<string, unknown>
  const keys = Object.keys(members)
    .filter((key) => members[key] !== undefined)
    .sort()
  frames.push({ close: '}', keys, values: keys.map((key) => members[key]), next: 0 })
  return '{'
}

/** True for literals and null-prototype objects, also those of another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}
