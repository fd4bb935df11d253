/**
 * The history of a chaos run: everything that clients, the world outside and the one who kills processes did and saw, in the order
 * in which it happened, as lines of JSON. The checker reads nothing else.
 *
 * One process writes it, so the order of the lines is real. Each line has `type` (`invoke`: begins; `ok`: is known to have
 * happened; `fail`: is known to have failed; `info`: nobody knows, or nobody needs to), `f` (the operation), `process` (who) and
 * `order` (which call).
 *
 *   f        process     members
 *   run      nemesis     info: seed, carrier, orders, kills (planned). The first line
 *   order    client N    invoke, and ok with `text`, the result; or fail with `error`
 *   round    client N    invoke with `answers` by key; ok with `asks`, the keys that are asked now; info: no reply, sent again
 *   effect   downstream  ok with `effect`, `key` and, if it depends on an answer, `answer`
 *   kill     nemesis     info with `instance`
 *   end      nemesis     info. The last line
 *
 * history 1: Every order that was invoked ends, with `ok`.
 * history 2: An answer whose round has a reply is acknowledged: its question is not asked again, and the result contains it.
 * history 3: An effect of an order has one key, and a key belongs to one effect of one order.
 * history 4: An answer is used by the order that it was given for, and for one key.
 * history 5: An order is charged if and only if its client said yes, after that, and before its result.
 */

export interface HistoryEvent {
  readonly type: 'invoke' | 'ok' | 'fail' | 'info'
  readonly f: 'run' | 'order' | 'round' | 'effect' | 'kill' | 'end'
  readonly process: string
  readonly order?: number
  readonly answers?: Readonly<Record<string, string>>
  readonly asks?: readonly string[]
  readonly effect?: string
  readonly key?: string
  readonly answer?: string
  readonly text?: string
  readonly error?: string
  readonly [fact: string]: unknown
}

/** Takes the events of a run. Adds a number and the time since the first one. */
export type Recorder = (event: HistoryEvent) => void

export interface HistoryVerdict {
  readonly problems: readonly string[]
  readonly figures: {
    readonly orders: number
    readonly rounds: number
    readonly unanswered: number
    readonly effects: number
    readonly repeated: number
    readonly kills: number
  }
}

/** What is known of one order. */
interface Known {
  invoked: boolean
  text?: string
  /** Answers that were sent, and those that were acknowledged. */
  readonly given: Map<string, Set<string>>
  readonly acknowledged: Map<string, string>
  readonly effects: Map<string, { readonly key: string; readonly answer?: string }>
}

/** Judges a history. */
export function checkHistory(events: readonly HistoryEvent[]): HistoryVerdict {
  const problems: string[] = []
  const orders = new Map<number, Known>()
  const owners = new Map<string, string>()
  const uses = new Map<string, string>()
  const sent = new Map<string, Readonly<Record<string, string>>>()
  const counts = { rounds: 0, unanswered: 0, effects: 0, repeated: 0, kills: 0 }
  const of = (order = -1): Known => {
    const known: Known = orders.get(order) ?? {
      invoked: false,
      given: new Map(),
      acknowledged: new Map(),
      effects: new Map(),
    }
    orders.set(order, known)
    return known
  }
  const claim = (map: Map<string, string>, name: string, owner: string, problem: string): void => {
    const before = map.get(name) ?? owner
    map.set(name, owner)
    if (before !== owner) problems.push(`${problem}: ${name} by ${before} and by ${owner}`)
  }

  const takeRound = ({ type, process, order, answers = {}, asks = [] }: HistoryEvent): void => {
    const known = of(order)
    const round = `${process} ${order}`
    if (type === 'invoke') {
      counts.rounds++
      sent.set(round, answers)
      for (const [key, value] of Object.entries(answers))
        known.given.set(key, (known.given.get(key) ?? new Set()).add(value))
      return
    }
    if (type !== 'ok') return void counts.unanswered++
    for (const [key, value] of Object.entries(sent.get(round) ?? {}))
      if (!known.acknowledged.has(key)) known.acknowledged.set(key, value)
    for (const key of asks)
      if (known.acknowledged.has(key))
        problems.push(`lost: order ${order} is asked ${key} again after ${known.acknowledged.get(key)}`)
  }
  const takeEffect = ({ order, effect = '', key = '', answer }: HistoryEvent): void => {
    const known = of(order)
    const name = `${effect} of order ${order}`
    counts.effects++
    if (owners.has(key)) counts.repeated++
    claim(owners, key, name, 'one key for two effects')
    const before = known.effects.get(effect)
    if (before && before.key !== key) problems.push(`two keys: ${name} under ${before.key} and ${key}`)
    known.effects.set(effect, { key, answer })
    if (answer !== undefined) {
      claim(uses, answer, `${name} under ${key}`, 'an answer used twice')
      if (!known.given.get('address')?.has(answer)) problems.push(`not given: ${name} used ${answer}`)
    }
    if (effect === 'charge' && !known.given.get('sure')?.has('yes'))
      problems.push(`not allowed: order ${order} is charged without a yes`)
    if (known.text !== undefined && before === undefined)
      problems.push(`late: ${name} happened after the order had ended`)
  }
  const takeEnd = ({ type, order, text = '', error }: HistoryEvent): void => {
    const known = of(order)
    if (type === 'invoke') {
      known.invoked = true
      return
    }
    if (type !== 'ok') return void problems.push(`lost: order ${order} ended with ${error}`)
    known.text = text
    const said = known.acknowledged.get('sure') ?? 'nothing'
    const address = known.acknowledged.get('address')
    const expected = said === 'yes' ? `order ${order} goes to ${address}` : 'not charged'
    if (text !== expected) problems.push(`result: order ${order} ended with "${text}", not "${expected}"`)
    for (const effect of said === 'yes' ? ['reserve', 'charge'] : ['reserve'])
      if (!known.effects.has(effect)) problems.push(`missing: order ${order} ended without its ${effect}`)
    const { answer } = known.effects.get('charge') ?? {}
    if (answer !== undefined && answer !== address)
      problems.push(`answer: order ${order} was charged for ${answer}, and ${address} was acknowledged`)
  }

  for (const event of events) {
    if (event.f === 'round') takeRound(event)
    else if (event.f === 'effect') takeEffect(event)
    else if (event.f === 'order') takeEnd(event)
    else if (event.f === 'kill') counts.kills++
  }
  for (const [order, { invoked, text }] of orders) {
    if (!invoked) problems.push(`unknown: order ${order} was never invoked`)
    else if (text === undefined) problems.push(`lost: order ${order} has not ended`)
  }
  const planned = events[0]?.f === 'run' ? Number(events[0].orders) : -1
  if (planned !== orders.size) problems.push(`incomplete: ${orders.size} orders, and ${planned} were planned`)
  if (events.at(-1)?.f !== 'end') problems.push('incomplete: the history has no end')
  return { problems, figures: { orders: orders.size, ...counts } }
}

/** Reads lines of JSON; throws with the number of a line that is none. */
export function readHistory(text: string): HistoryEvent[] {
  const lines = text.split('\n').filter((line) => line !== '')
  return lines.map((line, index) => {
    try {
      return JSON.parse(line) as HistoryEvent
    } catch {
      throw new Error(`Line ${index + 1} of the history is not JSON`)
    }
  })
}
