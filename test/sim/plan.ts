/**
 * The plan of a schedule: who calls what, and what goes wrong. A seed determines it. Everything in it has a name, and a plan
 * can be made without some of these: that is how a failing schedule shrinks.
 */

import { type Abilities, edit, flatten, generateProgram, has, nextRelease, type Program } from './program.ts'
import { createDice } from './world.ts'

export type Tool = 'plain' | 'single' | 'task' | 'leaving' | 'alone'

/** Things that a client does beyond calling: none of them may do harm. */
export type Habit =
  | 'fork'
  | 'other-arguments'
  | 'other-caller'
  | 'repeat'
  | 'answer-again'
  | 'partial'
  | 'misfit'
  /** Goes away in the middle of a call. */
  | 'leave'
  /** Cancels its task, or its call in a session. */
  | 'cancel'
  /** Answers its questions in another session too, with something else. */
  | 'other-session'

export interface CallPlan {
  readonly id: string
  readonly tool: Tool
  readonly principal: string
  /** The client can follow tasks. */
  readonly follows: boolean
  /** The client speaks 2025-11-25: questions are pushed on the stream of its call. */
  readonly older: boolean
  readonly startMs: number
  readonly releases: readonly [Program, Program]
  readonly habits: ReadonlySet<Habit>
  /** What an operator does to its task, this long after it has begun. A task that was failed is retried. */
  readonly operator?: { readonly kind: 'cancel' | 'fail'; readonly afterMs: number; readonly retryMs: number }
  /** Effects of its program can be undone, so that each of its states counts once. */
  readonly undoes: boolean
}

/** The nth crossing of a process boundary, or the nth beginning or end of work outside. */
interface Place {
  readonly crossing: number
  readonly place: 'any' | 'work'
}

export type Fault =
  /** The process that gets there dies there. */
  | ({ readonly id: string; readonly kind: 'kill' } & Place)
  /** It stands still for a while, and goes on as if nothing had happened. */
  | ({ readonly id: string; readonly kind: 'freeze'; readonly ms: number } & Place)
  /** The store crashes after the nth change: what it has acknowledged must be there when it is back. */
  | { readonly id: string; readonly kind: 'crash'; readonly change: number }
  /** All instances are replaced, one after the other, by another release. */
  | { readonly id: string; readonly kind: 'deploy'; readonly atMs: number; readonly release: 0 | 1 }
  | { readonly id: string; readonly kind: 'rotate'; readonly atMs: number }
  /** The store is restored in place: a new epoch begins. */
  | { readonly id: string; readonly kind: 'restore'; readonly atMs: number }

export interface Noise {
  readonly lose: number
  readonly double: number
  readonly slow: number
  readonly storeFails: number
  readonly skew: number
}

export interface Plan {
  readonly seed: number
  readonly instances: number
  readonly calls: readonly CallPlan[]
  readonly faults: readonly Fault[]
  readonly noise: Noise
  /** The entries after which a journal is full, if that happens. */
  readonly maxEntries?: number
}

const HABITS: readonly Habit[] = [
  'fork',
  'other-arguments',
  'other-caller',
  'repeat',
  'answer-again',
  'partial',
  'misfit',
]

export function createPlan(seed: number, without: ReadonlySet<string> = new Set()): Plan {
  const dice = createDice(`${seed} plan`)
  const has = (name: string): boolean => !without.has(name)
  const noisy = (name: string, probability: number): number =>
    dice.chance(0.5) && has(name) ? probability : 0
  const noise: Noise = {
    lose: noisy('lose', 0.12),
    double: noisy('double', 0.15),
    slow: noisy('slow', 0.08),
    storeFails: noisy('store-fails', 0.02),
    skew: noisy('skew', 120_000),
  }
  const instances = dice.int(1, 3)
  // Some schedules have calls of one kind only, so that its faults meet often.
  const picked = dice.pick([undefined, undefined, undefined, 'single', 'task', 'alone'] as const)
  // In others every call is a task that its client cancels, or an operator ends, in the middle of a long effect.
  const isUndone = createDice(`${seed} undone`).chance(0.12)
  const tool = isUndone ? 'task' : picked
  const newer = Array.from({ length: dice.int(1, 3) }, (_, index) =>
    planCall(seed, `c${index}`, without, tool, isUndone),
  )
  const calls = [...newer, ...planOlder(seed, without)]
  const faults = generateFaults(seed, tool === 'alone')
  const entries = createDice(`${seed} entries`)
  const maxEntries = entries.chance(0.06) && has('full') ? entries.int(2, 9) : undefined
  return {
    seed,
    instances,
    noise,
    maxEntries,
    faults: faults.filter(({ id }) => has(id)),
    calls: calls.filter(({ id }) => has(id)),
  }
}

/** `freezes`: a process stands still for so long that others replace it. */
function generateFaults(seed: number, freezes: boolean): Fault[] {
  const dice = createDice(`${seed} faults`)
  const faults: Fault[] = []
  const some = (count: number, add: (n: number) => Fault): void => {
    for (let n = 0; n < count; n++) faults.push(add(n))
  }
  const crossing = (): number => dice.int(1, dice.pick([20, 60, 120]))
  const anywhere = (): Place => ({ crossing: crossing(), place: 'any' })
  /** Between the beginning of work and its record. */
  const atWork = (): Place => ({ crossing: dice.int(1, dice.pick([4, 12])), place: 'work' })
  some(dice.chance(0.6) ? dice.int(1, 3) : 0, (n) => ({ id: `kill${n}`, kind: 'kill', ...anywhere() }))
  some(dice.chance(0.3) ? 1 : 0, (n) => ({ id: `cut${n}`, kind: 'kill', ...atWork() }))
  some(dice.chance(0.45) ? dice.int(1, 2) : 0, (n) => ({
    id: `freeze${n}`,
    kind: 'freeze',
    ...anywhere(),
    ms: dice.chance(0.5) ? dice.int(5_000, 30_000) : dice.int(40_000, 90_000),
  }))
  if (freezes) faults.push({ id: 'thaw', kind: 'freeze', ms: dice.int(40_000, 90_000), ...atWork() })
  some(dice.chance(0.3) ? 1 : 0, (n) => ({ id: `crash${n}`, kind: 'crash', change: crossing() }))
  if (dice.chance(0.35)) {
    const atMs = dice.int(100, 30_000)
    faults.push({ id: 'deploy', kind: 'deploy', atMs, release: 1 })
    if (dice.chance(0.3))
      faults.push({ id: 'back', kind: 'deploy', atMs: atMs + dice.int(100, 20_000), release: 0 })
  }
  if (dice.chance(0.3)) faults.push({ id: 'rotate', kind: 'rotate', atMs: dice.int(100, 30_000) })
  if (dice.chance(0.15)) faults.push({ id: 'restore', kind: 'restore', atMs: dice.int(100, 20_000) })
  return faults
}

function planCall(
  seed: number,
  id: string,
  without: ReadonlySet<string>,
  only?: Tool,
  isUndone = false,
): CallPlan {
  const dice = createDice(`${seed} ${id}`)
  const tool = only ?? dice.pick(['plain', 'plain', 'single', 'task', 'task', 'leaving'] as const)
  const follows = tool === 'task' || tool === 'leaving' || tool === 'alone'
  const tasks = tool === 'task' || tool === 'leaving'
  const abilities: Abilities = {
    tasks,
    store: true,
    undo: (tool !== 'alone' && dice.chance(0.35)) || isUndone,
  }
  const made = generateProgram(dice, `${id}.`, abilities)
  const leaving: Program = [...made.slice(0, 1), { op: 'background', key: `${id}.b` }, ...made.slice(1)]
  const first = lengthen(seed, tool === 'leaving' ? leaving : made, tasks && abilities.undo, isUndone)
  const second = nextRelease(dice, first, `${id}.`)
  const trim = (program: Program): Program => edit(program, (node) => (without.has(node.key) ? [] : [node]))
  const undoes = [first, second].some((program) => has(program, (node) => node.op === 'effect' && node.undo))
  // What others send to a task that has ended is refused, and they do not send it again.
  const isOperated = tasks && !has(first, ({ op }) => op === 'hook' || op === 'approve')
  const operator = isOperated && !without.has(`${id}:operator`) ? planOperator(seed, id, isUndone) : undefined
  const habits = HABITS.filter((habit) => dice.chance(0.2) && !(habit === 'fork' && (follows || undoes)))
  if (isUndone && undoes && !operator) habits.push('cancel')
  else if (undoes && dice.chance(0.4)) habits.push(tasks && dice.chance(0.5) ? 'cancel' : 'leave')
  return {
    id,
    tool,
    follows,
    older: false,
    principal: dice.pick(['alice', 'bob']),
    startMs: dice.int(0, 3_000),
    releases: [trim(first), trim(second)],
    operator,
    habits: new Set(habits.filter((habit) => !without.has(`${id}:${habit}`))),
    undoes,
  }
}

/** The names of everything in a plan that can be left out, the largest parts first. */
export function partsOf({ calls, faults, noise, maxEntries }: Plan): string[] {
  return [
    ...calls.map(({ id }) => id),
    ...faults.map(({ id }) => id),
    ...(noise.lose ? ['lose'] : []),
    ...(noise.double ? ['double'] : []),
    ...(noise.slow ? ['slow'] : []),
    ...(noise.storeFails ? ['store-fails'] : []),
    ...(noise.skew ? ['skew'] : []),
    ...(maxEntries === undefined ? [] : ['full']),
    ...calls.flatMap(({ id, habits }) => [...habits].map((habit) => `${id}:${habit}`)),
    ...calls.flatMap(({ id, operator }) => (operator ? [`${id}:operator`] : [])),
    ...calls.flatMap(({ releases }) => [
      ...new Set(releases.flatMap((program) => flatten(program).map(({ key }) => key))),
    ]),
  ]
}

/** Some tasks are ended by an operator. */
function planOperator(seed: number, id: string, isUndone: boolean): CallPlan['operator'] {
  const dice = createDice(`${seed} ${id} operator`)
  if (!dice.chance(0.4)) return undefined
  const kind = dice.chance(0.25) ? 'cancel' : 'fail'
  return {
    kind,
    afterMs: dice.int(0, dice.pick([3_000, 30_000])),
    // Some come back after everything was undone.
    retryMs: isUndone ? dice.int(20_000, 120_000) : dice.int(10, dice.pick([500, 60_000])),
  }
}

/** Some effects that can be undone run for longer than it takes to cancel their task and to undo it. */
function lengthen(seed: number, program: Program, undoes: boolean, isUndone: boolean): Program {
  const dice = createDice(`${seed} long ${program[0]?.key}`)
  if (!undoes || (dice.chance(0.4) && !isUndone)) return program
  return edit(program, (node) => {
    if (node.op !== 'effect' || !node.undo || node.retries > 0 || dice.chance(0.4)) return [node]
    return [{ ...node, ms: dice.int(8_000, 45_000) }]
  })
}

const OLDER_HABITS: readonly Habit[] = ['other-session', 'other-caller', 'repeat', 'answer-again', 'misfit']

/** The calls of older clients: a third of all schedules has some. */
function planOlder(seed: number, without: ReadonlySet<string>): CallPlan[] {
  const dice = createDice(`${seed} older`)
  return Array.from({ length: dice.chance(0.35) ? dice.int(1, 2) : 0 }, (_, index) => {
    const id = `c${index + 5}`
    const call = planCall(seed, id, without, 'plain')
    const habits = OLDER_HABITS.filter(() => dice.chance(0.25))
    if (dice.chance(0.15)) habits.push(dice.pick(['leave', 'cancel'] as const))
    const kept = habits.filter((habit) => !without.has(`${id}:${habit}`))
    return { ...call, older: true, habits: new Set(kept) }
  })
}
