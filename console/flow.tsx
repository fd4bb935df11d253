/** One flow: lanes over time, the journal table, its questions, what can be done to it, and the raw messages. */

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Action, ActionKind } from '../src/cli/console/event.ts'
import type { Api } from './api.ts'
import { type Flow, type Model, questionsOf, type Round, summarize, toTest } from './model.ts'
import { Empty, formatBytes, formatMs, Json, Outcome, QuestionCard } from './parts.tsx'

export function FlowView({
  model,
  id,
  api,
  link,
  file,
}: {
  model: Model
  id: string
  api: Api
  link: (path: string) => string
  file: string
}): JSX.Element {
  const [problem, setProblem] = useState('')
  const [fork, setFork] = useState<string>()
  const flow = model.flows.get(id)
  if (flow === undefined)
    return (
      <Empty>
        This flow is not known (any more). <a href={link('flows')}>All flows</a>
      </Empty>
    )
  const sum = summarize(flow)
  const last = flow.rounds.at(-1)
  const open = last && questionsOf(last)
  const forked = fork === undefined ? undefined : flow.rounds.find(({ exchange }) => exchange?.id === fork)
  const forkQuestions = forked && questionsOf(forked)
  const actions = [...model.actions.values()].filter((action) => action.flow === id).reverse()
  const act = async (kind: ActionKind, more: object = {}): Promise<void> => {
    setProblem('')
    try {
      await api.act(kind, { flow: id, ...more })
    } catch (error) {
      setProblem((error as Error).message)
    }
  }
  return (
    <article aria-labelledby="flow-title">
      <p>
        <a href={link('flows')}>Flows</a> / <code>{flow.id}</code>
      </p>
      <h1 id="flow-title">
        {flow.target} <Outcome outcome={sum.outcome} />
      </h1>
      <p>
        {flow.rounds.length} rounds on {sum.instances.join(', ')}; server {formatMs(sum.serverMs)}, human{' '}
        {formatMs(sum.humanMs)}
        {flow.client ? `; called by ${flow.client}` : ''}
        {flow.principal ? ` as ${flow.principal}` : ''}
      </p>
      <Lanes flow={flow} />
      <JournalTable flow={flow} />
      <div class="columns">
        <section aria-labelledby="questions-title">
          <h2 id="questions-title">Questions</h2>
          {open && last?.exchange ? (
            <QuestionCard
              key={last.exchange.id}
              id={last.exchange.id}
              questions={open}
              send={(inputResponses) => act('answer', { exchange: last.exchange?.id, inputResponses })}
            />
          ) : (
            <Empty>{sum.isOpen ? 'The call waits for its client.' : 'Nothing is open.'}</Empty>
          )}
          <Fork flow={flow} choose={setFork} chosen={fork} />
          {forked && forkQuestions && (
            <QuestionCard
              key={`fork-${fork}`}
              id={`fork-${fork}`}
              questions={forkQuestions}
              label="Fork with this answer"
              send={async (inputResponses) => {
                await act('fork', { exchange: fork, inputResponses })
                setFork(undefined)
              }}
            />
          )}
        </section>
        <section aria-labelledby="actions-title">
          <h2 id="actions-title">Break it on purpose</h2>
          {sum.isOpen ? (
            <div class="buttons">
              <button type="button" onClick={() => void act('kill')}>
                Kill instance {last?.instance}
              </button>
              <button type="button" onClick={() => void act('elsewhere')}>
                Next round elsewhere
              </button>
              <button type="button" onClick={() => void act('lose')}>
                Lose the next reply
              </button>
              <button type="button" onClick={() => void act('twice')}>
                Deliver twice
              </button>
              <button type="button" onClick={() => void act('flip')}>
                Flip a byte
              </button>
              <button type="button" onClick={() => void act('principal')}>
                Send as somebody else
              </button>
              <button type="button" onClick={() => void act('expire')}>
                Let it expire
              </button>
            </div>
          ) : (
            <Empty>The call is over. Fork it from a round, or call the tool again.</Empty>
          )}
          {problem !== '' && (
            <p class="problem" role="alert">
              {problem}
            </p>
          )}
          <ActionList actions={actions} />
        </section>
      </div>
      <section aria-labelledby="raw-title">
        <h2 id="raw-title">Messages</h2>
        <p class="buttons">
          <Download
            name={`${flow.target}.json`}
            text={() => JSON.stringify(flow, undefined, 2)}
            label="Export as JSON"
          />
          <Download
            name={`${flow.target}.test.ts`}
            text={() => toTest(flow, file)}
            label="Export as a test"
          />
        </p>
        {flow.rounds.map((round, i) => (
          <details key={round.exchange?.id ?? i}>
            <summary>
              Round {round.number} on {round.instance}: {round.event.outcome}
              {round.exchange?.by === 'console' ? ' (sent by the console)' : ''}
            </summary>
            <h3>Request</h3>
            <Json value={round.exchange?.request} />
            <h3>Response</h3>
            <Json value={round.exchange?.response} />
          </details>
        ))}
      </section>
    </article>
  )
}

function Download({ name, text, label }: { name: string; text: () => string; label: string }): JSX.Element {
  const save = (): void => {
    const url = URL.createObjectURL(new Blob([text()], { type: 'text/plain' }))
    const anchor = document.createElement('a')
    anchor.href = url
    anchor.download = name
    anchor.click()
    URL.revokeObjectURL(url)
  }
  return (
    <button type="button" onClick={save}>
      {label}
    </button>
  )
}

function Fork({
  flow,
  choose,
  chosen,
}: {
  flow: Flow
  choose: (exchange?: string) => void
  chosen: string | undefined
}): JSX.Element | null {
  const answered = flow.rounds.slice(0, -1).filter((round) => questionsOf(round))
  if (answered.length === 0) return null
  return (
    <div class="field">
      <label for="fork">Fork from a round, with another answer</label>
      <select
        id="fork"
        value={chosen ?? ''}
        onChange={(event) => choose(event.currentTarget.value || undefined)}
      >
        <option value="">–</option>
        {answered.map((round) => (
          <option key={round.exchange?.id} value={round.exchange?.id}>
            Round {round.number} ({Object.keys(questionsOf(round) ?? {}).join(', ')})
          </option>
        ))}
      </select>
    </div>
  )
}

export function ActionList({ actions }: { actions: readonly Action[] }): JSX.Element {
  return (
    <ol class="actions" aria-label="What was done" aria-live="polite">
      {actions.map(({ id, kind, instance, expected, happened, ok }) => (
        <li key={id} class={ok === undefined ? 'waits' : ok ? 'ok' : 'bad'} data-kind={kind}>
          <strong>
            {kind}
            {instance ? ` ${instance}` : ''}
          </strong>
          <span>Expected: {expected}.</span>
          <span>
            {happened === undefined
              ? 'Waits for the next round.'
              : `Happened: ${happened}. ${ok ? '✓ as expected' : '✗ not as expected'}`}
          </span>
        </li>
      ))}
    </ol>
  )
}

const LANE = 46
const LEFT = 76
const MIN = 46
const GAP = 64

/** A drawing of the rounds over time. Long waits are shortened: what matters is who waited for whom. */
function Lanes({ flow }: { flow: Flow }): JSX.Element {
  const instances = [...new Set(flow.rounds.map(({ instance }) => instance))].sort()
  const names = ['client', ...instances]
  let x = LEFT
  const bars = flow.rounds.map((round, i) => {
    const width = MIN + Math.min(90, Math.sqrt(round.event.ms) * 3)
    const before = flow.rounds[i - 1]
    if (before !== undefined) x += GAP
    const bar = {
      round,
      x,
      width,
      waited: before ? Math.max(0, round.began - before.began - before.event.ms) : 0,
      human: before?.event.outcome === 'input_required',
    }
    x += width
    return bar
  })
  const width = x + 40
  const height = names.length * LANE + 34
  const y = (name: string): number => names.indexOf(name) * LANE + 24
  const text = flow.rounds
    .map(({ number, instance, event }) => `round ${number} on ${instance}, ${event.outcome}`)
    .join('; ')
  return (
    <section class="lanes" tabIndex={0} aria-label="Rounds over time">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={text}>
        <defs>
          <pattern
            id="hatch"
            width="6"
            height="6"
            patternUnits="userSpaceOnUse"
            patternTransform="rotate(45)"
          >
            <line x1="0" y1="0" x2="0" y2="6" class="hatch" />
          </pattern>
          <marker
            id="tip"
            viewBox="0 0 8 8"
            refX="7"
            refY="4"
            markerWidth="7"
            markerHeight="7"
            orient="auto-start-reverse"
          >
            <path d="M0 0 8 4 0 8z" class="tip" />
          </marker>
        </defs>
        {names.map((name) => (
          <g key={name}>
            <line x1={LEFT - 8} x2={width - 8} y1={y(name)} y2={y(name)} class="lane" />
            <text x={4} y={y(name) + 4}>
              {name === 'client' ? 'client' : `instance ${name}`.slice(0, 11)}
            </text>
          </g>
        ))}
        {bars.map(({ round, x: at, width: w, waited, human }, i) => (
          <g key={round.exchange?.id ?? i}>
            {i > 0 && human && (
              <rect
                x={at - GAP + 4}
                y={y('client') - 8}
                width={GAP - 8}
                height={16}
                class="human"
                fill="url(#hatch)"
              />
            )}
            {i > 0 && (
              <text x={at - GAP / 2} y={y('client') - 12} class="small" text-anchor="middle">
                {formatMs(waited)}
              </text>
            )}
            <line
              x1={at}
              x2={at}
              y1={y('client')}
              y2={y(round.instance) - 12}
              class="arrow"
              marker-end="url(#tip)"
            />
            <rect
              x={at}
              y={y(round.instance) - 11}
              width={w}
              height={22}
              rx={4}
              class={`bar ${round.event.outcome}`}
            >
              <title>{`Round ${round.number}: executed ${round.event.executed}, replayed ${round.event.replayed}, ${formatMs(round.event.ms)}`}</title>
            </rect>
            <text x={at + w / 2} y={y(round.instance) + 4} text-anchor="middle" class="on-bar">
              {round.isBranch ? `${round.number}′` : round.number}
            </text>
            <line
              x1={at + w}
              x2={at + w}
              y1={y(round.instance) - 12}
              y2={y('client')}
              class="arrow"
              marker-end="url(#tip)"
            />
            {round.event.stateBytes !== undefined && (
              <text x={at + w + 4} y={(y(round.instance) + y('client')) / 2 + 4} class="small">
                {formatBytes(round.event.stateBytes)}
                {round.event.moved ? ` ${round.event.moved}` : ''}
                <title>{`State sealed with key ${round.event.keyId ?? ''}`}</title>
              </text>
            )}
          </g>
        ))}
      </svg>
    </section>
  )
}

/** One row per operation, one column per round: what ran, and what replay returned from the journal. */
function JournalTable({ flow }: { flow: Flow }): JSX.Element {
  const keys = [...new Set(flow.rounds.flatMap(({ operations }) => operations.map(({ key }) => key)))]
  if (keys.length === 0) return <Empty>The handler has called no operation of ctx.</Empty>
  const find = (key: string): Round['operations'][number] | undefined =>
    flow.rounds.flatMap(({ operations }) => operations).find((one) => one.key === key)
  return (
    <section class="journal" tabIndex={0} aria-label="Journal">
      <table>
        <thead>
          <tr>
            <th scope="col">Operation</th>
            {flow.rounds.map((round, i) => (
              <th scope="col" key={round.exchange?.id ?? i}>
                {round.event.task === undefined && round.exchange === undefined ? 'Turn' : 'Round'}{' '}
                {round.number}
                {round.isBranch ? '′' : ''}
                <small>{round.instance}</small>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => {
            const { kind, source } = find(key) ?? {}
            return (
              <tr key={key}>
                <th scope="row">
                  {key} <small>{kind}</small>
                  {source && <small title={source}>{source.split('/').at(-1)}</small>}
                </th>
                {flow.rounds.map((round, i) => (
                  <Cell
                    key={round.exchange?.id ?? i}
                    operation={round.operations.find((one) => one.key === key)}
                  />
                ))}
              </tr>
            )
          })}
        </tbody>
      </table>
    </section>
  )
}

function Cell({ operation }: { operation: Round['operations'][number] | undefined }): JSX.Element {
  if (operation === undefined) return <td class="unreached">not reached</td>
  const { state, ms, value, effectKey } = operation
  return (
    <td class={state}>
      {state === 'held' ? 'not run yet' : state}
      {ms !== undefined && <small>{formatMs(ms)}</small>}
      {effectKey && <small title={effectKey}>key {effectKey.slice(0, 8)}</small>}
      {value !== undefined && value !== 'undefined' && (
        <small class="value" title={value}>
          {value}
        </small>
      )}
    </td>
  )
}
