/**
 * Handlers as data: programs over `ctx`, generated from a seed, and one interpreter for them. The interpreter runs a program
 * against the real `ctx`, and again against the list of results that the handler saw, as an uninterrupted run.
 */

import type { Dice } from './world.ts'
import { hashText } from './world.ts'

export type AskKind = 'ask' | 'elicit' | 'confirm'

/** The first `fails` attempts fail; after a failure there are up to `retries` more. */
interface Attempts {
  readonly fails: number
  readonly retries: number
  readonly delayMs: number
}

export type Node =
  | { readonly op: 'ask'; readonly key: string; readonly kind: AskKind; readonly text: string }
  | (Attempts & { readonly op: 'step'; readonly key: string; readonly ms: number })
  | (Attempts & {
      readonly op: 'effect'
      readonly key: string
      readonly ms: number
      readonly once: boolean
      readonly undo: boolean
    })
  | { readonly op: 'sleep'; readonly key: string; readonly ms: number }
  | { readonly op: 'approve'; readonly key: string; readonly text: string; readonly quorum: number }
  /** `undo` undoes what ran so far; `stop` ends the call without success. */
  | { readonly op: 'undo' | 'stop'; readonly key: string }
  | { readonly op: 'hook'; readonly key: string }
  | {
      readonly op: 'offer'
      readonly key: string
      readonly text: string
      readonly waits: boolean
      readonly body: Program
    }
  | { readonly op: 'fixed' | 'background' | 'checkpoint'; readonly key: string }
  | { readonly op: 'all' | 'race'; readonly key: string; readonly branches: readonly Program[] }
  | { readonly op: 'if'; readonly key: string; readonly even: Program; readonly odd: Program }

export type Program = readonly Node[]
export type Question = Extract<Node, { readonly op: 'ask' | 'offer' }>
export type Approval = Extract<Node, { readonly op: 'approve' }>
export type Work = Extract<Node, { readonly ms: number }>

/** A result that reached the handler: the operation, and its outcome as text. An outcome that begins with `!` was thrown. */
export interface Seen {
  readonly key: string
  readonly value: string
  /** It follows from the results before it, and is not recorded. */
  readonly derived?: boolean
}

/** The operations of a program. Each resolves with its outcome as text, or rejects with an `Error`. */
export interface Operations {
  ask(node: Question): Promise<string>
  work(node: Work): Promise<string>
  approve(node: Approval): Promise<string>
  undo(node: Node): Promise<string>
  hook(node: Node): Promise<{ readonly id: string; received(): Promise<string> }>
  offer(node: Question): { peek(): string; answer(): Promise<string>; withdraw(): void }
  fixed(node: Node): string
  background(): Promise<void>
  checkpoint(): Promise<void>
  /** Called with every result, in the order in which the handler sees them. */
  saw(seen: Seen): void
}

/** Thrown by `stop`. */
const STOPPED = Symbol('stopped')

/** Runs a program, and returns a digest of everything it saw on its way. It begins with `!` if the program was stopped. */
export async function execute(program: Program, operations: Operations): Promise<string> {
  const trail: string[] = []
  const saw = (key: string, value: string, derived = false): string => {
    operations.saw({ key, value, derived })
    trail.push(`${key}=${value}`)
    return value
  }
  const outcome = (run: Promise<string>): Promise<string> =>
    run.catch((error: unknown) => `!${error instanceof Error ? error.message : 'not an error'}`)
  /** Returns the last value that these nodes saw. */
  const walk = async (nodes: Program, given: string): Promise<string> => {
    let last = given
    for (const node of nodes) last = await step(node, last)
    return last
  }
  const step = async (node: Node, last: string): Promise<string> => {
    switch (node.op) {
      case 'ask':
        return saw(node.key, await outcome(operations.ask(node)))
      case 'step':
      case 'effect':
      case 'sleep':
        return saw(node.key, await outcome(operations.work(node)))
      case 'approve':
        return saw(node.key, await outcome(operations.approve(node)))
      case 'undo':
        // Another release may call it before other effects.
        return saw(node.key, await outcome(operations.undo(node)), true)
      case 'stop':
        throw STOPPED
      case 'fixed':
        return saw(node.key, operations.fixed(node), true)
      case 'background':
        await operations.background()
        return last
      case 'checkpoint':
        await operations.checkpoint()
        return last
      case 'hook': {
        const hook = await operations.hook(node)
        saw(node.key, hook.id)
        return saw(`${node.key}.event`, await outcome(hook.received()))
      }
      case 'offer': {
        const offer = operations.offer(node)
        const inside = await walk(node.body, last)
        saw(`${node.key}.peek`, offer.peek(), true)
        if (node.waits) return saw(node.key, await outcome(offer.answer()))
        offer.withdraw()
        return inside
      }
      case 'all':
        return (await Promise.all(node.branches.map((branch) => walk(branch, last)))).join()
      case 'race': {
        const running = node.branches.map((branch) => walk(branch, last))
        const first = await Promise.race(running.map((one, index) => one.then(() => index)))
        saw(node.key, String(first), true)
        return (await Promise.all(running))[first] ?? ''
      }
      case 'if':
        return walk(hashText(last) % 2 === 0 ? node.even : node.odd, last)
    }
  }
  const stopped = await walk(program, '').then(
    () => '',
    (error: unknown) => {
      if (error === STOPPED) return '!'
      throw error
    },
  )
  return stopped + hashText(trail.join('\n')).toString(16)
}

const ONE_ATTEMPT: Attempts = { fails: 0, retries: 0, delayMs: 0 }

/** What a client can do, and so what a program may contain. */
export interface Abilities {
  readonly tasks: boolean
  readonly store: boolean
  /** Effects may have an undo, and the call may end without success. */
  readonly undo: boolean
}

/** Generates a program. `prefix` begins all of its keys. */
export function generateProgram(dice: Dice, prefix: string, { tasks, store, undo }: Abilities): Program {
  let count = 0
  const key = (kind: string): string => `${prefix}${kind}${++count}`
  const ask = (): Node => {
    const name = key('q')
    return {
      op: 'ask',
      key: name,
      kind: dice.pick(['ask', 'elicit', 'confirm'] as const),
      text: `Q[${name}]`,
    }
  }
  // All attempts together are over before a client loses its patience.
  const ms = ({ retries }: Attempts): number =>
    retries === 0 && dice.chance(0.15) ? dice.int(5_000, 20_000) : dice.int(0, 400)
  const attempts = (): Attempts => {
    if (!dice.chance(0.25)) return { ...ONE_ATTEMPT, fails: dice.chance(0.07) ? 1 : 0 }
    // The longer delays of a task are spent parked.
    const delayMs = tasks && dice.chance(0.5) ? dice.int(20_000, 90_000) : dice.int(0, 3_000)
    return { fails: dice.int(0, 3), retries: dice.int(1, 3), delayMs }
  }
  const work = (): Node => {
    const isEffect = dice.chance(0.55)
    const once = isEffect && store && dice.chance(0.25)
    const tried = once ? ONE_ATTEMPT : attempts()
    if (!isEffect) return { op: 'step', key: key('s'), ms: ms(tried), ...tried }
    const undoes = undo && !once && dice.chance(0.6)
    return { op: 'effect', key: key('e'), ms: ms(tried), once, undo: undoes, ...tried }
  }
  const leaf = (): Node => {
    const drawn = dice.next()
    if (drawn < 0.38) return ask()
    if (drawn < 0.78) return work()
    if (drawn < 0.83)
      return { op: 'sleep', key: key('z'), ms: tasks ? dice.int(10, 120_000) : dice.int(10, 5_000) }
    if (drawn < 0.9) return { op: 'fixed', key: key('f') }
    if (drawn < 0.94 && tasks) return { op: 'hook', key: key('h') }
    if (drawn < 0.97 && tasks) {
      const name = key('p')
      return { op: 'approve', key: name, text: `Q[${name}]`, quorum: dice.int(1, 2) }
    }
    return { op: 'checkpoint', key: key('c') }
  }
  const list = (depth: number, most: number): Program =>
    Array.from({ length: dice.int(1, most) }, () =>
      depth > 0 && dice.chance(0.4) ? branch(depth - 1) : leaf(),
    )
  const branch = (depth: number): Node => {
    const drawn = dice.next()
    if (drawn < 0.45)
      return {
        op: 'all',
        key: key('a'),
        branches: Array.from({ length: dice.int(2, 3) }, () => list(depth, 2)),
      }
    if (drawn < 0.6) return { op: 'race', key: key('r'), branches: [[work()], [work(), ...list(depth, 1)]] }
    if (drawn < 0.75) return { op: 'if', key: key('i'), even: list(depth, 2), odd: list(depth, 2) }
    const name = key('o')
    return { op: 'offer', key: name, text: `Q[${name}]`, waits: dice.chance(0.6), body: list(depth, 2) }
  }
  const body = list(2, 5)
  const ending = (): Program => {
    const name = key('x')
    if (dice.chance(0.4)) return [{ op: 'undo', key: name }]
    const stop: Node = { op: 'stop', key: name }
    return dice.chance(0.5) ? [stop] : [{ op: 'if', key: key('i'), even: [stop], odd: [] }]
  }
  return undo && dice.chance(0.7) ? [...body, ...ending()] : body
}

/** Returns the next release of a program: something of it was reworded, renamed, removed, added or moved. */
export function nextRelease(dice: Dice, program: Program, prefix: string): Program {
  const keys = flatten(program)
  const questions = keys.filter((node) => 'text' in node)
  const effects = keys.filter((node) => node.op === 'effect')
  const change = dice.pick(['reword', 'reword', 'rename', 'rename', 'remove', 'add', 'swap'])
  if (change === 'reword' && questions.length > 0) {
    const { key } = dice.pick(questions)
    return edit(program, (node) =>
      node.key === key && 'text' in node ? [{ ...node, text: `Q[${key} again]` }] : [node],
    )
  }
  if (change === 'rename' && effects.length > 0) {
    const { key } = dice.pick(effects)
    return edit(program, (node) => (node.key === key ? [{ ...node, key: `${key}x` } as Node] : [node]))
  }
  if (change === 'remove' && effects.length > 0) {
    const { key } = dice.pick(effects)
    return edit(program, (node) => (node.key === key ? [] : [node]))
  }
  if (change === 'swap') return [...program.slice(1), ...program.slice(0, 1)]
  const added: Node = dice.chance(0.5)
    ? { op: 'effect', key: `${prefix}new`, ms: 10, once: false, undo: false, ...ONE_ATTEMPT }
    : { op: 'step', key: `${prefix}new`, ms: 10, ...ONE_ATTEMPT }
  return dice.chance(0.5) ? [added, ...program] : [...program, added]
}

/** All nodes of a program. */
export function flatten(program: Program): Node[] {
  return program.flatMap((node) => [node, ...childrenOf(node).flatMap(flatten)])
}

function childrenOf(node: Node): readonly Program[] {
  if (node.op === 'all' || node.op === 'race') return node.branches
  if (node.op === 'if') return [node.even, node.odd]
  return node.op === 'offer' ? [node.body] : []
}

/** Replaces every node by the nodes that `change` returns for it. */
export function edit(program: Program, change: (node: Node) => Program): Program {
  return program
    .flatMap((node) => change(node))
    .map((node): Node => {
      if (node.op === 'all' || node.op === 'race')
        return { ...node, branches: node.branches.map((branch) => edit(branch, change)) }
      if (node.op === 'if') return { ...node, even: edit(node.even, change), odd: edit(node.odd, change) }
      return node.op === 'offer' ? { ...node, body: edit(node.body, change) } : node
    })
}

const TICKS = 30

/**
 * Runs a program as plain code, without the runtime: every operation returns what the list says, in the order of the list.
 * Returns the digest, or why the list cannot be that of an uninterrupted run.
 */
export async function rerun(
  program: Program,
  seen: readonly Seen[],
): Promise<{ digest?: string; problem?: string }> {
  const waiting = new Map<string, (value: string) => void>()
  const values = new Map(seen.map(({ key, value }) => [key, value]))
  const later = (key: string): Promise<string> =>
    new Promise((resolve, reject) => {
      waiting.set(key, (value) =>
        value.startsWith('!') ? reject(new Error(value.slice(1))) : resolve(value),
      )
    })
  /** Points where a run may stop: passed when the handler has nothing left to do. */
  const points: (() => void)[] = []
  const point = (): Promise<void> => new Promise((resolve) => points.push(resolve))
  const got: Seen[] = []
  const running = execute(program, {
    ask: ({ key }) => later(key),
    work: ({ key }) => later(key),
    approve: ({ key }) => later(key),
    undo: ({ key }) => later(key),
    hook: async ({ key }) => ({ id: await later(key), received: () => later(`${key}.event`) }),
    offer: ({ key }) => ({
      peek: () => values.get(`${key}.peek`) ?? 'missing',
      answer: () => later(key),
      withdraw() {},
    }),
    fixed: ({ key }) => values.get(key) ?? 'missing',
    background: point,
    checkpoint: point,
    saw: (one) => got.push(one),
  })
  let digest: string | undefined
  void running.then((value) => {
    digest = value
  })
  const settle = async (): Promise<void> => {
    for (;;) {
      for (let tick = 0; tick < TICKS; tick++) await undefined
      if (points.length === 0) return
      for (const pass of points.splice(0)) pass()
    }
  }
  for (const { key, value } of seen) {
    await settle()
    waiting.get(key)?.(value)
    waiting.delete(key)
  }
  await settle()
  const differs = seen.findIndex(({ key, value }, at) => got[at]?.key !== key || got[at]?.value !== value)
  if (differs >= 0)
    return {
      problem: `saw ${JSON.stringify(seen[differs])}, an uninterrupted run ${JSON.stringify(got[differs])}`,
    }
  return digest === undefined ? { problem: 'an uninterrupted run would not have ended' } : { digest }
}

/** The keys of everything that two programs do alike, from their beginning to the first difference. */
export function commonKeys(one: Program, other: Program): Set<string> {
  const differs = one.findIndex((node, at) => JSON.stringify(node) !== JSON.stringify(other[at]))
  return new Set(flatten(differs < 0 ? one : one.slice(0, differs)).map(({ key }) => key))
}

/** Whether a program has a node like this. */
export function has(program: Program, is: (node: Node) => boolean): boolean {
  return flatten(program).some(is)
}
