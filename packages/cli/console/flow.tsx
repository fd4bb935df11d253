/** One flow: lanes over time, the journal table, its questions, what can be done to it, and the raw messages. */

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { cleanText } from 'rondo/forms'
import {
  type ActionKind,
  EXPECTED,
  type Served,
  sayDelivery,
  type UpstreamRequest,
} from '../src/console/event.ts'
import type { Api } from './api.ts'
import { toTest } from './export.ts'
import { Lanes } from './lanes.tsx'
import {
  argumentsOf,
  type DatedAction,
  type End,
  endOf,
  type Flow,
  hooksOf,
  type Model,
  nameOf,
  outcomeOf,
  questionsOf,
  type Round,
  sidesOf,
  stateOf,
  summarize,
  type Task,
} from './model.ts'
import { Badge, brief, Empty, formatBytes, formatMs, Json, Outcome, Panel, QuestionCard } from './parts.tsx'

export function FlowView({
  model,
  id,
  api,
  now,
  link,
  file,
  served,
}: {
  model: Model
  id: string
  api: Api
  now: number
  link: (path: string) => string
  file: string
  served: Served
}): JSX.Element {
  const [problem, setProblem] = useState('')
  const [fork, setFork] = useState<string>()
  const flow = model.flows.get(id)
  if (flow === undefined)
    return (
      <Empty>
        This flow is not known, or no longer. <a href={link('flows')}>All flows</a>
      </Empty>
    )
  const task = flow.task === undefined ? undefined : model.tasks.get(flow.task)
  const sum = summarize(flow)
  const sides = sidesOf(flow)
  const outcome = outcomeOf(flow, task, now)
  const isOpen = task === undefined && (outcome === 'input_required' || outcome === 'moved')
  const end = endOf(flow, task)
  const last = flow.rounds.at(-1)
  const open = last && questionsOf(last)
  const forked = fork === undefined ? undefined : flow.rounds.find(({ exchange }) => exchange?.id === fork)
  const forkQuestions = forked && questionsOf(forked)
  const actions = [...model.actions.values()].filter((action) => action.flow === id)
  const isDown = last !== undefined && model.instances.get(last.instance)?.state === 'down'
  const act = async (kind: ActionKind, more: object = {}): Promise<void> => {
    setProblem('')
    try {
      await api.act(kind, { flow: id, ...more })
    } catch (error) {
      setProblem((error as Error).message)
    }
  }
  return (
    <article class="flow" aria-labelledby="flow-title">
      <header class="flow-head">
        <p class="crumbs">
          <a href={link('flows')}>Flows</a> / <code>{flow.id}</code>
        </p>
        <h1 id="flow-title">
          {flow.target} <code class="args">{brief(argumentsOf(flow))}</code> <Outcome outcome={outcome} />
        </h1>
        <dl class="facts">
          <Fact name={flow.task === undefined ? 'Rounds' : 'Rounds and turns'}>{flow.rounds.length}</Fact>
          <Fact name="Instances">
            <span class="badges">
              {sum.instances.map((name) => (
                <Badge key={name} name={name} />
              ))}
            </span>
          </Fact>
          <Fact name="Server">{formatMs(sum.serverMs)}</Fact>
          <Fact name="Human">{formatMs(sum.humanMs)}</Fact>
          <Fact name="State">{sum.stateBytes > 0 ? formatBytes(sum.stateBytes) : 'none'}</Fact>
          <Fact name="Caller">
            {flow.client ?? 'unknown'}
            {flow.principal ? ` as ${flow.principal}` : ''}
          </Fact>
          {sides && (
            <Fact name="Sides">
              {sides.client} → {sides.upstream}
            </Fact>
          )}
        </dl>
        {end && <EndView end={end} />}
        {end === undefined && flow.running && (
          <p class="end" aria-live="polite">
            {flow.running.name} runs on <Badge name={flow.running.instance} /> now
            {flow.running.status === undefined ? '.' : `: ${flow.running.status}`}
          </p>
        )}
      </header>
      <div class="flow-grid">
        <Panel title="What happened, where" id="lanes-title">
          <Lanes flow={flow} actions={actions} instances={[...model.instances.keys()]} isOpen={isOpen} />
        </Panel>
        <div class="deeds">
          <Panel title="Question" id="questions-title">
            {open && last?.exchange ? (
              <QuestionCard
                key={last.exchange.id}
                id={last.exchange.id}
                questions={open}
                send={(inputResponses) => act('answer', { exchange: last.exchange?.id, inputResponses })}
              />
            ) : task !== undefined ? (
              <TaskQuestion flow={flow} task={task} now={now} api={api} link={link} />
            ) : (
              <Empty>
                {isOpen
                  ? 'The call waits for its client.'
                  : outcome === 'running'
                    ? 'The round runs.'
                    : 'Nothing is open.'}
              </Empty>
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
          </Panel>
          <Panel title="Break it on purpose" id="actions-title">
            {isOpen && flow.task === undefined ? (
              <ul class="breaks">
                {BREAKS.map(([kind, label]) => (
                  <li key={kind}>
                    <button
                      type="button"
                      onClick={() => (kind === 'kill' && isDown ? undefined : void act(kind))}
                      aria-disabled={(kind === 'kill' && isDown) || undefined}
                      aria-describedby={`expect-${kind}`}
                    >
                      {kind !== 'kill'
                        ? label
                        : isDown
                          ? `Instance ${last?.instance} is down`
                          : `Kill instance ${last?.instance}`}
                    </button>
                    <Verdict
                      id={`expect-${kind}`}
                      expected={EXPECTED[kind]}
                      action={actions.findLast(
                        (one) => one.kind === kind && (kind !== 'kill' || one.instance === last?.instance),
                      )}
                    />
                  </li>
                ))}
              </ul>
            ) : (
              <Empty>
                {flow.task === undefined
                  ? 'The call is over. Fork it from a round, or call the tool again.'
                  : 'The task lives in the store: kill or drain an instance above, and another one continues.'}
              </Empty>
            )}
            {problem !== '' && (
              <p class="problem" role="alert">
                {problem}
              </p>
            )}
          </Panel>
        </div>
        <Panel
          title="Journal: what ran, what was replayed"
          id="journal-title"
          aside={
            <p class="legend">
              <span class="cell ran">ran</span> <span class="cell failed">threw</span>{' '}
              <span class="cell replayed">replayed</span> <span class="cell asked">asked</span>{' '}
              <span class="cell answered">answered</span>
            </p>
          }
        >
          <JournalTable flow={flow} />
        </Panel>
        <Panel title="Expected, and what happened" id="done-title">
          {actions.length === 0 && (
            <Empty>
              Nothing was done from this page yet. Each action says what should happen, and then what did.
            </Empty>
          )}
          <ActionList actions={[...actions].reverse()} />
        </Panel>
      </div>
      <Panel
        title="Messages"
        id="raw-title"
        aside={
          <p class="buttons">
            <Download
              name={`${flow.target}.json`}
              text={() => JSON.stringify(flow, undefined, 2)}
              label="Export as JSON"
            />
            <Download
              name={`${flow.target}.test.ts`}
              text={() => toTest(flow, file, served, task)}
              label="Export as a test"
            />
          </p>
        }
      >
        {flow.rounds.map((round, i) => (
          <details key={round.exchange?.id ?? i}>
            <summary>
              {nameOf(round)} on {round.instance}: {round.event.outcome}
              {round.exchange?.by === 'console' ? ' (sent by the console)' : ''}
            </summary>
            <div class="messages">
              <div>
                <h3>Request</h3>
                <Json value={round.exchange?.request} />
              </div>
              <div>
                <h3>Response</h3>
                <Json value={round.exchange?.response} />
              </div>
            </div>
            <Behind requests={model.upstream.get(round.exchange?.id ?? '') ?? []} />
          </details>
        ))}
      </Panel>
    </article>
  )
}

/** The requests to the servers behind a gateway that began in a round. */
function Behind({ requests }: { requests: readonly UpstreamRequest[] }): JSX.Element | null {
  if (requests.length === 0) return null
  return (
    <>
      <h3>Sent to the server behind</h3>
      <ul class="behind">
        {requests.map(({ upstream, revision, method, target, ms, outcome }, i) => (
          <li key={String(i)}>
            {upstream} ({revision}): <code>{method}</code> {target ?? ''} {outcome}, {formatMs(ms)}
          </li>
        ))}
      </ul>
    </>
  )
}

/** The result or the error of a flow. */
function EndView({ end: { isGood, text, more } }: { end: End }): JSX.Element {
  return (
    <section class={isGood ? 'end good-end' : 'end bad-end'} aria-label={isGood ? 'Result' : 'Error'}>
      <h2>{isGood ? 'Result' : 'Error'}</h2>
      {text !== '' && <p class="end-text">{cleanText(text, 20_000, 'many')}</p>}
      {more !== undefined && <Json value={more} />}
    </section>
  )
}

/** The expected outcome of an action, and afterwards the real one. */
function Verdict({
  id,
  expected,
  action,
}: {
  id: string
  expected: string
  action: DatedAction | undefined
}): JSX.Element {
  if (action === undefined) return <small id={id}>{expected}.</small>
  if (action.happened === undefined)
    return (
      <small id={id} class="waits">
        {action.phase ?? 'Armed: happens with the next round'}.
      </small>
    )
  return (
    <small id={id} class={action.ok ? 'good' : 'problem'}>
      {action.ok ? '✓' : '✗'} {action.happened}
    </small>
  )
}

function TaskQuestion({
  flow,
  task,
  now,
  api,
  link,
}: {
  flow: Flow
  task: Task
  now: number
  api: Api
  link: (path: string) => string
}): JSX.Element {
  const { state, says } = stateOf(task, now)
  return (
    <>
      <p class="empty">
        <Outcome outcome={state === 'ended' ? task.status : state} /> {says}{' '}
        <a href={link('tasks')}>All tasks</a>
      </p>
      {state === 'asks' && task.questions && (
        <QuestionCard
          key={Object.keys(task.questions).join()}
          id={task.id}
          questions={task.questions}
          send={(answers) => api.task(task.id, { answers }).catch(() => {})}
        />
      )}
      <Deliver flow={flow} task={task} api={api} />
    </>
  )
}

/** Sends an event to a hook that waits, as the world outside would. */
export function Deliver({
  flow,
  task,
  api,
}: {
  flow: Flow | undefined
  task: Task
  api: Api
}): JSX.Element | null {
  const [text, setText] = useState('{}')
  const [problem, setProblem] = useState('')
  const hooks = hooksOf(flow, task)
  if (hooks.length === 0) return null
  const deliver = async (hook: string): Promise<void> => {
    setProblem('')
    try {
      const delivery = await api.deliver(hook, JSON.parse(text))
      if (delivery.kind !== 'accepted') setProblem(sayDelivery(delivery))
    } catch (error) {
      setProblem(error instanceof SyntaxError ? 'This is not JSON' : (error as Error).message)
    }
  }
  return (
    <div class="field deliver">
      <label for={`${task.id}-event`}>Event, as JSON</label>
      <textarea
        id={`${task.id}-event`}
        rows={3}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {problem !== '' && (
        <small class="problem" role="alert">
          {problem}
        </small>
      )}
      <div class="buttons">
        {hooks.map(({ key, id }) => (
          <button key={key} type="button" onClick={() => void deliver(id)}>
            Deliver to {key}
          </button>
        ))}
      </div>
    </div>
  )
}

const BREAKS = [
  ['kill', 'Kill instance'],
  ['elsewhere', 'Next round elsewhere'],
  ['lose', 'Lose the next reply'],
  ['twice', 'Deliver twice'],
  ['reword', 'Reword the question'],
  ['reload', 'Reload the server'],
  ['flip', 'Flip a byte'],
  ['principal', 'Send as somebody else'],
  ['expire', 'Let it expire'],
] as const

function Fact({
  name,
  children,
}: {
  name: string
  children: JSX.Element | string | number | (string | JSX.Element)[]
}) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
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
    <div class="field fork">
      <label for="fork">Fork from a round, with another answer</label>
      <select
        id="fork"
        value={chosen ?? ''}
        onChange={(event) => choose(event.currentTarget.value || undefined)}
        aria-describedby="expect-fork"
      >
        <option value="">–</option>
        {answered.map((round) => (
          <option key={round.exchange?.id} value={round.exchange?.id}>
            Round {round.number}
            {round.isBranch ? '′' : ''} ({Object.keys(questionsOf(round) ?? {}).join(', ')})
          </option>
        ))}
      </select>
      <small id="expect-fork">{EXPECTED.fork}.</small>
    </div>
  )
}

const NAMES: Readonly<Partial<Record<ActionKind, string>>> = {
  ...Object.fromEntries(BREAKS.filter(([kind]) => kind !== 'kill')),
  kill: 'Kill',
  start: 'Start',
  drain: 'Drain',
  answer: 'Answer',
  fork: 'Fork',
}

export function ActionList({ actions }: { actions: readonly DatedAction[] }): JSX.Element {
  return (
    <ol class="actions" aria-label="What was done" aria-live="polite">
      {actions.map(({ id, kind, instance, expected, phase, happened, ok }) => (
        <li key={id} class={ok === undefined ? 'waits' : ok ? 'ok' : 'bad'} data-kind={kind}>
          <strong>
            {NAMES[kind] ?? kind}
            {instance ? ` ${instance}` : ''}
          </strong>
          <span>Expected: {expected}.</span>
          <span>
            {happened === undefined
              ? `${phase ?? 'Waits for the next round'}.`
              : `Happened: ${happened}. ${ok ? '✓ as expected' : '✗ not as expected'}`}
          </span>
        </li>
      ))}
    </ol>
  )
}

interface Column {
  readonly id: string
  readonly name: string
  readonly instance: string
  readonly operations: Round['operations']
}

/** One row per operation, one column per round: what ran, and what replay returned from the journal. */
function JournalTable({ flow }: { flow: Flow }): JSX.Element {
  const columns: readonly Column[] = [
    ...flow.rounds.map((round, i) => ({
      id: round.exchange?.id ?? String(i),
      name: `${nameOf(round)}${round.isBranch ? '′' : ''}`,
      instance: round.instance,
      operations: round.operations,
    })),
    ...(flow.running ? [{ ...flow.running, id: 'running', name: `${flow.running.name}, running` }] : []),
  ]
  const all = columns.flatMap(({ operations }) => operations)
  const keys = [...new Set(all.map(({ key }) => key))]
  if (keys.length === 0)
    return <Empty>The handler has called no operation of ctx: nothing to record, nothing to replay.</Empty>
  return (
    <section class="journal" tabIndex={0} aria-label="Journal">
      <table>
        <thead>
          <tr>
            <th scope="col">Operation</th>
            {columns.map(({ id, name, instance }) => (
              <th scope="col" key={id}>
                {name} <Badge name={instance} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => {
            const { kind, source } = all.find((one) => one.key === key) ?? {}
            return (
              <tr key={key}>
                <th scope="row">
                  <strong>{key}</strong> <span class="kind">{kind}</span>
                  {source && <small title={source}>{source.split('/').at(-1)}</small>}
                </th>
                {columns.map(({ id, operations }) => (
                  <Cell key={id} operation={operations.find((one) => one.key === key)} />
                ))}
              </tr>
            )
          })}
        </tbody>
      </table>
    </section>
  )
}

/** Steps that wait for something other than their turn to run. */
const PAUSES: Readonly<Record<string, string>> = { event: 'waiting', sleep: 'sleeping' }
const WORDS: Readonly<Record<string, string>> = { held: 'not run yet', failed: 'threw' }

function Cell({ operation }: { operation: Round['operations'][number] | undefined }): JSX.Element {
  if (operation === undefined) return <td class="unreached">not reached</td>
  const { kind, state, ms, value, effectKey, failedAttempts } = operation
  return (
    <td>
      <span class={`cell ${state}`}>{(state === 'held' && PAUSES[kind]) || (WORDS[state] ?? state)}</span>
      {ms !== undefined && <small>{formatMs(ms)}</small>}
      {failedAttempts !== undefined && (
        <small>{failedAttempts === 1 ? '1 attempt failed' : `${failedAttempts} attempts failed`}</small>
      )}
      {effectKey && (
        <small title={effectKey} class="mono">
          key {effectKey.slice(0, 8)}
        </small>
      )}
      {value !== undefined && value !== 'undefined' && state !== 'replayed' && (
        <small class="value" title={value}>
          {shorten(value)}
        </small>
      )}
    </td>
  )
}

function shorten(value: string): string {
  try {
    return brief(JSON.parse(value))
  } catch {
    return value
  }
}
