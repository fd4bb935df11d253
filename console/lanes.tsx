/**
 * A drawing of a flow over time: a lane for the client, for each instance, and for a task's store and its workers. A bar is a
 * round or a turn; the hatched gap is the time of a person; between two rounds the client carries the state. Long waits are
 * shortened: what matters is who waited for whom.
 */

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { type DatedAction, type Flow, isTurn, type Round } from './model.ts'
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
  /** Where the gap before it begins. */
  readonly gapFrom: number
  readonly waited: number
  readonly isHuman: boolean
  readonly lane: string
  readonly isTurn: boolean
}

interface Drawing {
  readonly bars: readonly Drawn[]
  /** Where the last bar ends. */
  readonly end: number
  readonly width: number
}

const laneOf = (round: Round): string => (isTurn(round) ? `worker ${round.instance}` : round.instance)

/** Places the bars; what is left of the width goes to the gaps. */
function place(rounds: readonly Round[], isOpen: boolean, available: number): Drawing {
  const widths = rounds.map(({ event }) => MIN_BAR + Math.min(70, Math.sqrt(event.ms) * 3))
  const bare = LEFT + widths.reduce((sum, one) => sum + one, 0) + (isOpen ? OPEN : 24)
  const gaps = Math.max(1, rounds.length - 1)
  const gap = Math.min(420, Math.max(MIN_GAP, (available - bare) / gaps))
  let x = LEFT
  const bars = rounds.map((round, i): Drawn => {
    const before = rounds[i - 1]
    const gapFrom = x
    if (before !== undefined) x += gap
    const bar = {
      ...{ round, x, gapFrom, width: widths[i] ?? MIN_BAR, lane: laneOf(round), isTurn: isTurn(round) },
      waited: before ? Math.max(0, round.began - before.began - before.event.ms) : 0,
      isHuman: before?.event.outcome === 'input_required',
    }
    x += bar.width
    return bar
  })
  return { bars, end: x, width: Math.max(available, x + (isOpen ? OPEN : 24)) }
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
  const { bars, end, width } = place(flow.rounds, isOpen, available)
  const height = TOP + names.length * LANE - 8
  const text = flow.rounds
    .map(
      (round) =>
        `${isTurn(round) ? 'turn' : 'round'} ${round.number} on ${round.instance}, ${round.event.outcome}`,
    )
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
        {actions.flatMap((action) => {
          const at = markOf(action, bars, end)
          return at === undefined ? [] : [<Mark key={action.id} action={action} x={at} y={y} />]
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
        <title>{`${bar.isTurn ? 'Turn' : 'Round'} ${round.number}: executed ${event.executed}, replayed ${event.replayed}, ${formatMs(event.ms)}, ${event.outcome}`}</title>
      </rect>
      <text x={x + width / 2} y={at + 4.5} text-anchor="middle" class={`on-bar ${event.outcome}`}>
        {round.isBranch ? `${round.number}′` : round.number}
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

/** Where an action is drawn: in the gap in which it was done. */
function markOf({ at, kind }: DatedAction, bars: readonly Drawn[], end: number): number | undefined {
  if (!(kind in MARKS)) return undefined
  const next = bars.find(({ round }) => round.began >= at)
  if (next === undefined) return end + 26
  return next.gapFrom === next.x ? undefined : (next.gapFrom + next.x) / 2
}

const MARKS: Readonly<Record<string, string>> = {
  kill: '✕ killed',
  flip: '⊘ flip',
  principal: '⊘ caller',
  expire: '⊘ expired',
  reword: '✎ reworded',
}

function Mark({
  action,
  x,
  y,
}: {
  action: DatedAction
  x: number
  y: (name: string) => number
}): JSX.Element {
  const isKill = action.kind === 'kill'
  return (
    <text
      x={x}
      y={isKill ? y(action.instance ?? '') + 4 : y('client') + 4}
      text-anchor="middle"
      class={action.ok === false ? 'mark bad' : isKill ? 'mark bad' : 'mark'}
    >
      {MARKS[action.kind]}
      <title>{action.happened ?? action.expected}</title>
    </text>
  )
}
