/** The list of flows, newest first. Only the rows in sight are in the document. */

import type { JSX } from 'preact'
import { useMemo, useRef, useState } from 'preact/hooks'
import { type Flow, type Model, summarize } from './model.ts'
import { Ago, Empty, formatBytes, formatMs, Outcome } from './parts.tsx'

const ROW = 44
const SPARE = 8

export function Flows({
  model,
  now,
  link,
  mcp,
}: {
  model: Model
  now: number
  link: (path: string) => string
  mcp: string
}): JSX.Element {
  const [text, setText] = useState('')
  const [outcome, setOutcome] = useState('')
  const [top, setTop] = useState(0)
  const box = useRef<HTMLElement>(null)
  const flows = useMemo(() => {
    const wanted = text.toLowerCase()
    return [...model.flows.values()].reverse().filter((flow) => {
      if (outcome !== '' && flow.rounds.at(-1)?.event.outcome !== outcome) return false
      return (
        wanted === '' ||
        `${flow.target} ${flow.id} ${flow.client ?? ''} ${flow.principal ?? ''}`
          .toLowerCase()
          .includes(wanted)
      )
    })
  }, [model.flows, text, outcome])
  const height = box.current?.clientHeight ?? 800
  const from = Math.max(0, Math.floor(top / ROW) - SPARE)
  const shown = flows.slice(from, from + Math.ceil(height / ROW) + 2 * SPARE)
  return (
    <section aria-labelledby="flows-title">
      <h1 id="flows-title">Flows</h1>
      <div class="filters">
        <label>
          Find <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <label>
          Outcome{' '}
          <select value={outcome} onChange={(event) => setOutcome(event.currentTarget.value)}>
            <option value="">all</option>
            {['complete', 'tool_error', 'input_required', 'moved', 'task', 'refused'].map((one) => (
              <option key={one} value={one}>
                {one.replace('_', ' ')}
              </option>
            ))}
          </select>
        </label>
        <span role="status">
          {flows.length} of {model.flows.size}
        </span>
      </div>
      {flows.length === 0 ? (
        <Empty>
          {model.flows.size > 0 ? (
            'No flow matches.'
          ) : (
            <>
              No call yet. Call a tool under <a href={link('try')}>Try</a>, or connect any MCP client to{' '}
              <code>{mcp}</code>.
            </>
          )}
        </Empty>
      ) : (
        <section
          class="list"
          ref={box}
          onScroll={(event) => setTop(event.currentTarget.scrollTop)}
          tabIndex={0}
          aria-label="List of flows"
        >
          <ul style={{ height: `${flows.length * ROW}px` }}>
            {shown.map((flow, i) => (
              <Row key={flow.id} flow={flow} now={now} y={(from + i) * ROW} href={link(`flow/${flow.id}`)} />
            ))}
          </ul>
        </section>
      )}
    </section>
  )
}

function Row({ flow, now, y, href }: { flow: Flow; now: number; y: number; href: string }): JSX.Element {
  const sum = summarize(flow)
  return (
    <li style={{ transform: `translateY(${y}px)` }}>
      <a href={href} class="row">
        <strong>{flow.target}</strong>
        <Outcome outcome={sum.outcome} />
        <span>{flow.rounds.length === 1 ? '1 round' : `${flow.rounds.length} rounds`}</span>
        <span class="wide">
          server {formatMs(sum.serverMs)}, human {formatMs(sum.humanMs)}
        </span>
        <span class="wide">{sum.stateBytes > 0 ? formatBytes(sum.stateBytes) : 'no state'}</span>
        <span class="wide">on {sum.instances.join(', ')}</span>
        <span class="wide">{flow.principal ?? flow.client ?? ''}</span>
        <Ago at={sum.began} now={now} />
      </a>
    </li>
  )
}
