/**
 * A drawing of a flow over time: a lane for the client, for each instance, and for a task's store and its workers. A bar is a
 * round or a turn; the hatched gap is the time of a person; between two rounds the client carries the state. Long waits are
 * shortened: what matters is who waited for whom.
 */

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { type DatedAction, type Flow, isTurn, nameOf, type Round } from './model.ts'
import { formatBytes, formatMs, hueOf } from './parts.tsx'

const LANE = 46
const TOP = 34
const LEFT = 104
const BAR = 24
const MIN_BAR = 46
const MIN_GAP = 104
const OPEN = 150

interface Drawn {
  readonly round: Round
  readonly x: number
  readonly width: number
  /** The position at which the gap before it begins. */
  readonly gapFrom: number
  readonly waited: number
  readonly isHuman: boolean
  readonly lane: string
  readonly isTurn: boolean
}

interface Drawing {
  readonly bars: readonly Drawn[]
  /** The position at which the last bar ends. */
  readonly end: number
  readonly width: number
}

const laneOf = (round: Round): string => (isTurn(round) ? `worker ${round.instance}` : round.instance)

/** Places the bars; what is left of the width goes to the gaps. */
function place(
  rounds: readonly Round[],
  marks: readonly Mark[],
  isOpen: boolean,
  available: number,
): Drawing {
  const widths = rounds.map(({ event }) => MIN_BAR + Math.min(70, Math.sqrt(event.ms) * 3))
  /** The room that the marks in the gap before a round need; after the last round, in the space that follows it. */
  const needs = (at: number): number =>
    Math.max(0, ...marks.filter((mark) => mark.gap === at).map(({ text }) => text.length * 7.5 + 32))
  const after = Math.max(isOpen ? OPEN : 24, needs(rounds.length))
  const bare = LEFT + widths.reduce((sum, one) => sum + one, 0) + after
  const gaps = Math.max(1, rounds.length - 1)
  const gap = Math.min(420, Math.max(MIN_GAP, (available - bare) / gaps))
  let x = LEFT
  const bars = rounds.map((round, i): Drawn => {
    const before = rounds[i - 1]
    const gapFrom = x
    if (before !== undefined) x += Math.max(gap, needs(i))
    const bar = {
      ...{ round, x, gapFrom, width: widths[i] ?? MIN_BAR, lane: laneOf(round), isTurn: isTurn(round) },
      waited: before ? Math.max(0, round.began - before.began - before.event.ms) : 0,
      isHuman: before?.event.outcome === 'input_required',
    }
    x += bar.width
    return bar
  })
  return { bars, end: x, width: Math.max(available, x + after) }
}

export function Lanes({
  flow,
  actions,
  instances,
  isOpen,
}: {
  flow: Flow
  actions: readonly DatedAction[]
  instances: readonly string[]
  isOpen: boolean
}): JSX.Element {
  const box = useRef<HTMLElement>(null)
  const [available, setAvailable] = useState(640)
  useEffect(() => {
    const seen = new ResizeObserver(() => setAvailable(Math.floor(box.current?.clientWidth ?? 640)))
    if (box.current) seen.observe(box.current)
    return () => seen.disconnect()
  }, [])

  const turns = flow.rounds.filter(isTurn)
  const served = flow.rounds.filter((round) => !isTurn(round)).map(({ instance }) => instance)
  const workers = [...new Set(turns.map(laneOf))].sort()
  const names = [
    'client',
    ...[...new Set([...instances, ...served])].sort(),
    ...(flow.task === undefined ? [] : ['store', ...workers]),
  ]
  const y = (name: string): number => TOP + Math.max(0, names.indexOf(name)) * LANE
  const marks = marksOf(actions, flow.rounds)
  const { bars, end, width } = place(flow.rounds, marks, isOpen, available)
  const height = TOP + names.length * LANE - 8
  const text = flow.rounds
    .map((round) => `${nameOf(round)} on ${round.instance}, ${round.event.outcome}`)
    .join('; ')
  return (
    <section class="lanes" tabIndex={0} aria-label="Rounds over time" ref={box}>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={text}>
        <defs>
          <pattern
            id="hatch"
            width="7"
            height="7"
            patternUnits="userSpaceOnUse"
            patternTransform="rotate(45)"
          >
            <line x1="0" y1="0" x2="0" y2="7" class="hatch" />
          </pattern>
          <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0 8 4 0 8z" class="tip" />
          </marker>
        </defs>
        {names.map((name) => (
          <LaneLine key={name} name={name} y={y(name)} width={width} />
        ))}
        {bars.map((bar, i) => (
          <Bar key={bar.round.exchange?.id ?? i} bar={bar} y={y} isFirst={i === 0} next={bars[i + 1]} />
        ))}
        {isOpen && flow.task === undefined && (
          <g>
            <rect
              x={end + 8}
              y={y('client') - 9}
              width={width - end - 20}
              height={18}
              rx={4}
              class="human open"
            />
            <text x={(end + width) / 2} y={y('client') - 15} class="small" text-anchor="middle">
              waits for an answer
            </text>
          </g>
        )}
        {marks.map((mark) => {
          const next = bars[mark.gap]
          const x = next === undefined ? (end + width) / 2 : (next.gapFrom + next.x) / 2
          return (
            <text
              key={`${mark.gap} ${mark.lane}`}
              x={x}
              y={y(mark.lane) + 4}
              text-anchor="middle"
              class={mark.isBad ? 'mark bad' : 'mark'}
            >
              {mark.text}
              <title>{mark.title}</title>
            </text>
          )
        })}
      </svg>
    </section>
  )
}

function LaneLine({ name, y, width }: { name: string; y: number; width: number }): JSX.Element {
  const isInstance = /^[A-Z]\d*$/.test(name)
  return (
    <g>
      <line x1={LEFT - 12} x2={width - 8} y1={y} y2={y} class="lane" />
      {isInstance && <circle cx={16} cy={y} r={10} class={`dot i${hueOf(name)}`} />}
      {isInstance && (
        <text x={16} y={y + 4} text-anchor="middle" class={`dot-text i${hueOf(name)}`}>
          {name}
        </text>
      )}
      <text x={isInstance ? 32 : 8} y={y + 4} class="lane-name">
        {isInstance ? 'instance' : name}
      </text>
    </g>
  )
}

function Bar({
  bar,
  y,
  isFirst,
  next,
}: {
  bar: Drawn
  y: (name: string) => number
  isFirst: boolean
  next: Drawn | undefined
}): JSX.Element {
  const { round, x, width, lane, gapFrom, waited, isHuman } = bar
  const { event, exchange } = round
  const home = y(bar.isTurn ? 'store' : 'client')
  const at = y(lane)
  const down = at > home
  const edge = down ? at - BAR / 2 - 1 : at + BAR / 2 + 1
  const isLost = exchange?.fault === 'lose'
  const middle = (gapFrom + x) / 2
  return (
    <g>
      {!isFirst && isHuman && !bar.isTurn && (
        <rect x={gapFrom + 8} y={home - 9} width={x - gapFrom - 16} height={18} rx={4} class="human" />
      )}
      {!isFirst && (
        <text x={middle} y={home - 15} class="small" text-anchor="middle">
          {isHuman ? `human ${formatMs(waited)}` : formatMs(waited)}
        </text>
      )}
      <line x1={x + 3} x2={x + 3} y1={home} y2={edge} class="arrow" marker-end="url(#tip)" />
      <rect x={x} y={at - BAR / 2} width={width} height={BAR} rx={6} class={`bar ${event.outcome}`}>
        <title>{`${nameOf(round)}: executed ${event.executed}, replayed ${event.replayed}, ${formatMs(event.ms)}, ${event.outcome}`}</title>
      </rect>
      <text x={x + width / 2} y={at + 4.5} text-anchor="middle" class={`on-bar ${event.outcome}`}>
        {bar.isTurn ? event.turn : round.isBranch ? `${round.number}′` : round.number}
      </text>
      <line
        x1={x + width - 3}
        x2={x + width - 3}
        y1={edge}
        y2={home}
        class={isLost ? 'arrow lost' : 'arrow'}
        marker-end={isLost ? undefined : 'url(#tip)'}
      />
      {isLost && (
        <text x={x + width - 3} y={(edge + home) / 2 + 4} class="mark bad" text-anchor="middle">
          ✕ reply lost
        </text>
      )}
      {event.stateBytes !== undefined && !isLost && (
        <g>
          <text x={x + width + 12} y={home + 22} class="small state">
            {`${formatBytes(event.stateBytes)}${event.keyId ? ` · key ${event.keyId}` : ''}`}
            <title>{`The client carries the sealed state: ${event.stateBytes} bytes, key ${event.keyId ?? 'unknown'}`}</title>
          </text>
          {event.moved && next && (
            <text x={x + width + 12} y={home + 35} class="small state">
              moved: {event.moved}
            </text>
          )}
        </g>
      )}
    </g>
  )
}

/** Deliberate actions, where they are drawn: one text for all actions in one gap of a lane. */
interface Mark {
  /** The index of the round before which it was done. */
  readonly gap: number
  readonly lane: string
  readonly text: string
  readonly title: string
  readonly isBad: boolean
}

const MARKS: Readonly<Record<string, string>> = {
  kill: '✕ killed',
  flip: '⊘ flip',
  principal: '⊘ caller',
  expire: '⊘ expired',
  reword: '✎ reworded',
}

function marksOf(actions: readonly DatedAction[], rounds: readonly Round[]): readonly Mark[] {
  const groups = new Map<string, { gap: number; lane: string; done: DatedAction[] }>()
  for (const action of actions) {
    if (!(action.kind in MARKS)) continue
    const next = rounds.findIndex(({ began }) => began >= action.at)
    if (next === 0) continue
    const gap = next === -1 ? rounds.length : next
    const lane = action.kind === 'kill' ? (action.instance ?? '') : 'client'
    const group = groups.get(`${gap} ${lane}`) ?? { gap, lane, done: [] }
    group.done.push(action)
    groups.set(`${gap} ${lane}`, group)
  }
  return [...groups.values()].map(({ gap, lane, done }) => ({
    gap,
    lane,
    text: [...new Set(done.map(({ kind }) => MARKS[kind] ?? ''))].join(' '),
    title: done.map(({ happened, expected }) => happened ?? expected).join('; '),
    isBad: done.some(({ kind, ok }) => kind === 'kill' || ok === false),
  }))
}
