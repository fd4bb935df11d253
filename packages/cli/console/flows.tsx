/**
 * The list of flows, newest first. While somebody reads the list (it is scrolled, pointed at or focused), new flows wait behind
 * a button, so that no row moves.
 */

import type { JSX } from 'preact'
import { useMemo, useRef, useState } from 'preact/hooks'
import { VirtualList } from './list.tsx'
import { argumentsOf, type Flow, type Model, outcomeOf, type Summary, summarize } from './model.ts'
import { Ago, Badge, brief, Empty, formatBytes, formatMs, Outcome } from './parts.tsx'

const ROW = 48
const OUTCOMES = [
  'complete',
  'tool_error',
  'failed',
  'cancelled',
  'refused',
  'input_required',
  'running',
  'due',
  'held',
  'sleeping',
  'waiting',
  'moved',
]

export function Flows({
  model,
  now,
  link,
  mcp,
  chosen,
}: {
  model: Model
  now: number
  link: (path: string) => string
  mcp: string
  /** The flow that is shown beside the list. */
  chosen?: string
}): JSX.Element {
  const [text, setText] = useState('')
  const [outcome, setOutcome] = useState('')
  /** The newest flow that is shown; while somebody reads, it stays the same. */
  const newest = useRef<string | undefined>(undefined)
  const [, again] = useState(0)
  const box = useRef<HTMLElement>(null)
  const standingOf = (flow: Flow): string =>
    outcomeOf(flow, flow.task === undefined ? undefined : model.tasks.get(flow.task), now)
  const all = useMemo(() => [...model.flows.values()].reverse(), [model.flows])
  const found = useMemo(() => {
    const wanted = text.toLowerCase()
    return all.filter((flow) => {
      if (outcome !== '' && standingOf(flow) !== outcome) return false
      return (
        wanted === '' ||
        `${flow.target} ${flow.id} ${flow.client ?? ''} ${flow.principal ?? ''} ${brief(argumentsOf(flow))}`
          .toLowerCase()
          .includes(wanted)
      )
    })
  }, [all, text, outcome, outcome === '' ? undefined : model])
  if (!isRead(box.current)) newest.current = found[0]?.id
  const hidden = Math.max(
    0,
    found.findIndex(({ id }) => id === newest.current),
  )
  const flows = useMemo(() => (hidden === 0 ? found : found.slice(hidden)), [found, hidden])
  const release = (): void => {
    newest.current = found[0]?.id
    box.current?.scrollTo(0, 0)
    // The button goes away, and with it would the focus.
    box.current?.focus({ preventScroll: true })
    again((count) => count + 1)
  }
  const isAside = chosen !== undefined
  return (
    <section class={isAside ? 'flows aside' : 'flows'} aria-labelledby="flows-title">
      <div class="title">
        {isAside ? <h2 id="flows-title">Flows</h2> : <h1 id="flows-title">Flows</h1>}
        <div class="filters">
          <label>
            <span>Find</span>
            <input
              type="search"
              value={text}
              onInput={(event) => {
                setText(event.currentTarget.value)
              }}
            />
          </label>
          <label>
            <span>Outcome</span>
            <select
              value={outcome}
              onChange={(event) => {
                setOutcome(event.currentTarget.value)
              }}
            >
              <option value="">all</option>
              {OUTCOMES.map((one) => (
                <option key={one} value={one}>
                  {one === 'input_required' ? 'asks' : one.replace('_', ' ')}
                </option>
              ))}
            </select>
          </label>
          <span role="status" class="count">
            {found.length} of {model.flows.size}
          </span>
        </div>
      </div>
      {flows.length === 0 ? (
        model.flows.size > 0 ? (
          <Empty>No flow matches. Clear the filter to see all {model.flows.size}.</Empty>
        ) : (
          <div class="welcome">
            <p class="lead">No call yet.</p>
            <ol>
              <li>
                <a href={link('try')}>Try a tool</a>: a form from its schema, and its questions on this page.
              </li>
              <li>
                Or connect any MCP client to <code>{mcp}</code>. Its calls appear here.
              </li>
              <li>Then open a call, kill the instance that asked, and answer: another one continues.</li>
            </ol>
          </div>
        )
      ) : (
        <div class="list-frame">
          <div class="row head" aria-hidden="true">
            <span>Call</span>
            <span>Outcome</span>
            <span>Rounds</span>
            <span class="wide">Server and human time</span>
            <span class="wide">State</span>
            <span class="wide">Instances</span>
            <span class="wide">Caller</span>
            <span>Began</span>
          </div>
          <button type="button" class="new" hidden={hidden === 0} onClick={release}>
            {hidden === 1 ? '1 new flow' : `${hidden} new flows`}: show
          </button>
          <VirtualList items={flows} keyOf={idOf} rowHeight={ROW} isFixed box={box} label="List of flows">
            {(flow) => (
              <Row
                flow={flow}
                outcome={standingOf(flow)}
                now={now}
                href={link(`flow/${flow.id}`)}
                isChosen={flow.id === chosen}
              />
            )}
          </VirtualList>
        </div>
      )}
    </section>
  )
}

const idOf = ({ id }: Flow): string => id

/** Somebody reads the list: it is scrolled, pointed at or focused. */
function isRead(list: HTMLElement | null): boolean {
  if (list === null) return false
  // With the button for new flows, which may appear under the pointer.
  const frame = list.parentElement ?? list
  return list.scrollTop > 0 || frame.matches(':hover') || frame.contains(document.activeElement)
}

/** A flow that does not change keeps its line. */
const summaries = new WeakMap<Flow, Summary>()

function summaryOf(flow: Flow): Summary {
  const known = summaries.get(flow) ?? summarize(flow)
  summaries.set(flow, known)
  return known
}

function Row({
  flow,
  outcome,
  now,
  href,
  isChosen,
}: {
  flow: Flow
  outcome: string
  now: number
  href: string
  isChosen: boolean
}): JSX.Element {
  const sum = summaryOf(flow)
  const rounds = flow.rounds.length
  // A row that has not changed is not compared again: scrolling costs only the rows that come into sight.
  return useMemo(
    () => (
      <a href={href} class="row" aria-current={isChosen ? 'true' : undefined}>
        <span class="call">
          <strong>{flow.target}</strong> <code>{brief(argumentsOf(flow))}</code>
        </span>
        <Outcome outcome={outcome} />
        <span class="number">{rounds === 1 ? '1 round' : `${rounds} rounds`}</span>
        <span class="wide">
          <Split server={sum.serverMs} human={sum.humanMs} />
        </span>
        <span class="wide number">{sum.stateBytes > 0 ? formatBytes(sum.stateBytes) : 'no state'}</span>
        <span class="wide badges">
          {sum.instances.map((name) => (
            <Badge key={name} name={name} />
          ))}
        </span>
        <span class="wide">{flow.principal ?? flow.client ?? ''}</span>
        <Ago at={sum.began} now={now} />
      </a>
    ),
    [flow, outcome, now, href, isChosen],
  )
}

/** The time of the server and the time of people. */
function Split({ server, human }: { server: number; human: number }): JSX.Element {
  const part = server + human === 0 ? 100 : Math.max(4, Math.round((100 * server) / (server + human)))
  return (
    <span class="split">
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect width="100" height="6" rx="0" class={human > 0 ? 'split-human' : 'split-server'} />
        <rect width={part} height="6" class="split-server" />
      </svg>
      <small>
        {formatMs(server)}
        {human > 0 ? `, human ${formatMs(human)}` : ''}
      </small>
    </span>
  )
}
