/**
 * Finds regular expressions that a backtracking engine may need exponential time for (T11).
 *
 * The pattern becomes an automaton with one state per character it can match (Glushkov's construction), which keeps count
 * of the ways in which one state follows another. It is exponential if, within one loop, some text leads from a
 * state back to itself in two ways:
 *
 * 1. one state follows another in two ways, as in `(a+)+`, `(a?b?)*`;
 * 2. or two different runs over the same text part and meet again, as in `(a|a)*`, `(\w+\s?)*`, `(.*,)*`.
 *
 * What it reports is so (given a text that fails to match in the end). What it misses: loops through assertions, lookaround
 * and back references, overlaps outside of the characters sampled, and time that grows as a power of the length, which
 * a limit on the length has to hold.
 */

import { type PatternTree, readPattern } from './pattern-tree.ts'

const MAX_LENGTH = 4_000
const MAX_STATES = 2_000
const MAX_PARTS = 20_000
const MAX_WORK = 2_000_000
/** Counted repetition is unrolled up to here; more than that counts as endless. */
const UNROLL = 12

/** Why the pattern is refused, as the end of a sentence; undefined if nothing speaks against it. */
export function findPatternDanger(pattern: string): string | undefined {
  if (pattern.length > MAX_LENGTH) return `is longer than ${MAX_LENGTH} characters`
  const unicode = compiles(pattern, 'u')
  if (!unicode && !compiles(pattern, '')) return 'is not a regular expression'
  const automaton = buildAutomaton(readPattern(pattern, unicode))
  if (automaton === undefined) return 'is too large to be checked'
  const overlap = compareAtoms(automaton.atoms, sampleCharacters(pattern), unicode)
  if (!isExponential(automaton, overlap)) return undefined
  return 'can take exponential time: something in it repeats in more than one way, as in (a+)+ or (a|a)*'
}

interface Automaton {
  /** What each state matches. */
  readonly atoms: readonly string[]
  /** For each state the states that follow, and in how many ways; 2 stands for more. */
  readonly follow: readonly ReadonlyMap<number, number>[]
}

type Ways = ReadonlyMap<number, number>

interface Part {
  readonly first: Ways
  readonly last: Ways
  /** In how many ways it matches nothing. */
  readonly empty: number
}

const NONE: Ways = new Map()
const EMPTY: Part = { first: NONE, last: NONE, empty: 1 }
const WALL: Part = { first: NONE, last: NONE, empty: 0 }

function buildAutomaton(tree: PatternTree): Automaton | undefined {
  const atoms: string[] = []
  const follow: Map<number, number>[] = []
  let parts = 0
  const isTooLarge = (): boolean => parts > MAX_PARTS || atoms.length > MAX_STATES

  const link = (last: Ways, first: Ways): void => {
    for (const [from, fromWays] of last) {
      const next = follow[from]
      for (const [to, toWays] of first) next?.set(to, Math.min(2, (next.get(to) ?? 0) + fromWays * toWays))
    }
  }
  const join = (a: Part, b: Part): Part => {
    link(a.last, b.first)
    return {
      first: sum(a.first, times(b.first, a.empty)),
      last: sum(b.last, times(a.last, b.empty)),
      empty: Math.min(2, a.empty * b.empty),
    }
  }
  const repeat = (item: PatternTree, min: number, max: number): Part => {
    let part = EMPTY
    if (max > UNROLL) {
      part = build(item)
      link(part.last, part.first)
      return min === 0 ? { ...part, empty: 1 } : part
    }
    // An optional round that matches nothing is not tried by the engine.
    for (let i = min; i < max; i++) part = { ...join({ ...build(item), empty: 0 }, part), empty: 1 }
    for (let i = 0; i < min; i++) part = join(build(item), part)
    return part
  }
  const build = (node: PatternTree): Part => {
    parts++
    if (isTooLarge()) return WALL
    switch (node.kind) {
      case 'atom': {
        const state = new Map([[atoms.push(node.text) - 1, 1]])
        follow.push(new Map())
        return { first: state, last: state, empty: 0 }
      }
      case 'wall':
        if (node.inner !== undefined) build(node.inner)
        return WALL
      case 'sequence':
        return node.items.reduce((part, item) => join(part, build(item)), EMPTY)
      case 'choice':
        return node.items.map(build).reduce(either)
      case 'repeat':
        return repeat(node.item, node.min, node.max)
    }
  }
  build(tree)
  return isTooLarge() ? undefined : { atoms, follow }
}

function either(a: Part, b: Part): Part {
  return { first: sum(a.first, b.first), last: sum(a.last, b.last), empty: Math.min(2, a.empty + b.empty) }
}

function sum(a: Ways, b: Ways): Ways {
  if (a.size === 0) return b
  if (b.size === 0) return a
  const all = new Map(a)
  for (const [state, ways] of b) all.set(state, Math.min(2, (all.get(state) ?? 0) + ways))
  return all
}

function times(ways: Ways, factor: number): Ways {
  if (factor === 0) return NONE
  return factor === 1 ? ways : new Map([...ways].map(([state, n]) => [state, Math.min(2, n * factor)]))
}

function isExponential(automaton: Automaton, overlap: (a: number, b: number) => boolean): boolean {
  const { follow } = automaton
  const loopOf = findLoops(follow)
  const inLoop = (from: number, to: number): boolean => loopOf[from] === loopOf[to]
  const size = follow.length
  const seen = new Set<number>()
  const todo: [number, number][] = follow.map((_, state) => [state, state])
  for (let work = 0; work < MAX_WORK; ) {
    const pair = todo.pop()
    if (pair === undefined) return false
    const [a, b] = pair
    for (const [nextA, ways] of follow[a] ?? []) {
      if (!inLoop(a, nextA)) continue
      if (ways > 1) return true
      for (const [nextB] of follow[b] ?? []) {
        work++
        if (!inLoop(b, nextB) || !overlap(nextA, nextB)) continue
        if (nextA === nextB) {
          if (a !== b) return true
          continue
        }
        const id = Math.min(nextA, nextB) * size + Math.max(nextA, nextB)
        if (!seen.has(id)) {
          seen.add(id)
          todo.push([nextA, nextB])
        }
      }
    }
  }
  return false
}

/** The number of the loop each state is in (Tarjan's components); states outside of loops have numbers of their own. */
function findLoops(follow: readonly Ways[]): number[] {
  const order: number[] = new Array(follow.length).fill(-1)
  const low: number[] = [...order]
  const loopOf: number[] = [...order]
  const open: number[] = []
  let count = 0
  const visit = (state: number): void => {
    order[state] = low[state] = count++
    open.push(state)
    for (const next of follow[state]?.keys() ?? []) {
      if (order[next] === -1) visit(next)
      if (loopOf[next] === -1) low[state] = Math.min(low[state] ?? 0, low[next] ?? 0)
    }
    if (low[state] !== order[state]) return
    for (const member of open.splice(open.lastIndexOf(state))) loopOf[member] = state
  }
  for (let state = 0; state < follow.length; state++) if (order[state] === -1) visit(state)
  return loopOf
}

/** Latin letters, digits and signs, a few from elsewhere, and every character the pattern itself names. */
function sampleCharacters(pattern: string): string[] {
  const named = [...pattern.matchAll(/\\u\{?([0-9a-fA-F]{4,6})/g)].map((match) => Number(`0x${match[1]}`))
  const codes = [...Array(0x300).keys(), 0x2028, 0x4e2d, 0x1f600, ...named.filter((code) => code <= 0x10ffff)]
  return [...new Set([...codes.map((code) => String.fromCodePoint(code)), ...pattern])]
}

/** Whether two states can match the same character: the engine itself says which of the sample each matches. */
function compareAtoms(atoms: readonly string[], sample: readonly string[], unicode: boolean) {
  const matched = new Map<string, Set<string>>()
  for (const atom of atoms) {
    if (matched.has(atom)) continue
    const expression = new RegExp(`^(?:${atom})$`, unicode ? 'u' : '')
    matched.set(atom, new Set(sample.filter((char) => expression.test(char))))
  }
  const known = new Map<string, boolean>()
  return (a: number, b: number): boolean => {
    const [left, right] = [atoms[a] ?? '', atoms[b] ?? '']
    if (left === right) return true
    const pair = `${left}\n${right}`
    let answer = known.get(pair)
    if (answer === undefined) {
      const other = matched.get(right)
      answer = [...(matched.get(left) ?? [])].some((char) => other?.has(char))
      known.set(pair, answer)
    }
    return answer
  }
}

function compiles(pattern: string, flags: string): boolean {
  try {
    new RegExp(pattern, flags)
    return true
  } catch {
    return false
  }
}
