/** Tasks: where each stands in the store, what it waits for, who runs it, and its questions. Polls are folded into a number. */

import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { cleanText } from 'rondo/forms'
import type { Api } from './api.ts'
import { Deliver } from './flow.tsx'
import { VirtualList } from './list.tsx'
import { endOf, type Flow, type Model, stateOf, type Task, type TaskState } from './model.ts'
import { Ago, Badge, Empty, formatMs, Outcome, QuestionCard, type Responses } from './parts.tsx'

const STATES: readonly (readonly [TaskState, string])[] = [
  ['running', 'running'],
  ['due', 'due'],
  ['asks', 'parked, asking'],
  ['sleeping', 'sleeping'],
  ['waiting', 'waiting for an event'],
  ['held', 'held for the client'],
  ['ended', 'ended'],
]

/** Of a task that asks nothing. */
const ROW = 150

export function Tasks({
  model,
  api,
  now,
  link,
}: {
  model: Model
  api: Api
  now: number
  link: (path: string) => string
}): JSX.Element {
  const [only, setOnly] = useState<TaskState>()
  const tasks = useMemo(() => [...model.tasks.values()].reverse(), [model.tasks])
  const stated = tasks.map((task) => ({ task, ...stateOf(task, now) }))
  const shown = stated.filter(({ state }) => only === undefined || state === only)
  return (
    <section aria-labelledby="tasks-title">
      <div class="title">
        <h1 id="tasks-title">Tasks</h1>
        {tasks.length > 0 && (
          <fieldset class="tallies">
            <legend>Show</legend>
            {STATES.map(([state, name]) => (
              <button
                key={state}
                type="button"
                aria-pressed={only === state}
                onClick={() => setOnly(only === state ? undefined : state)}
              >
                <span class="number">{stated.filter((one) => one.state === state).length}</span> {name}
              </button>
            ))}
          </fieldset>
        )}
      </div>
      {tasks.length === 0 ? (
        <Empty>
          No task yet. A call becomes one when its tool calls <code>ctx.background()</code> or has the option{' '}
          <code>task</code>, the server has a store, and the client can follow tasks.{' '}
          <a href={link('try')}>Try</a> can.
        </Empty>
      ) : shown.length === 0 ? (
        <Empty>No task is {only} now. Press the button again to see all.</Empty>
      ) : (
        <VirtualList items={shown} keyOf={idOf} rowHeight={ROW} class="tasks" label="List of tasks">
          {({ task, state, waits }) => (
            <TaskRow
              task={task}
              flow={task.flow === undefined ? undefined : model.flows.get(task.flow)}
              state={state}
              waits={waits}
              api={api}
              now={now}
              link={link}
            />
          )}
        </VirtualList>
      )}
    </section>
  )
}

const idOf = ({ task }: { readonly task: Task }): string => task.id

function TaskRow({
  task,
  flow,
  state,
  waits,
  api,
  now,
  link,
}: {
  task: Task
  flow: Flow | undefined
  state: TaskState
  waits: string
  api: Api
  now: number
  link: (path: string) => string
}): JSX.Element {
  const [problem, setProblem] = useState('')
  const send = async (change: { answers?: Responses; cancel?: boolean }): Promise<void> => {
    setProblem('')
    try {
      await api.task(task.id, change)
    } catch (error) {
      setProblem((error as Error).message)
    }
  }
  const { stored, turns } = task
  const last = turns.at(-1)
  const end = flow && endOf(flow, task)
  const isFailure = task.status === 'completed' && end?.isGood === false
  return (
    <article class={`panel task ${state}`}>
      <header class="panel-head">
        <h2>
          <Outcome outcome={state !== 'ended' ? state : isFailure ? 'tool_error' : task.status} />{' '}
          {task.target ?? 'task'} <code>{task.id}</code>
        </h2>
        <p class="buttons">
          {task.flow && <a href={link(`flow/${task.flow}`)}>its flow</a>}
          <button type="button" class="quiet" onClick={() => void send({})}>
            Poll
          </button>
          {state !== 'ended' && (
            <button type="button" class="quiet" onClick={() => void send({ cancel: true })}>
              Cancel the task
            </button>
          )}
        </p>
      </header>
      <dl class="facts">
        <div>
          <dt>{state === 'ended' ? 'Ended' : state === 'running' ? 'Runs' : 'Waits for'}</dt>
          <dd class="waits">{waits}</dd>
        </div>
        {task.message && state !== 'ended' && (
          <div>
            <dt>Status</dt>
            <dd>{task.message}</dd>
          </div>
        )}
        <div>
          <dt>Turns</dt>
          <dd>
            {turns.length}
            {last && (
              <>
                , last on <Badge name={last.instance} /> {formatMs(last.ms)}
              </>
            )}
          </dd>
        </div>
        <div>
          <dt>Failed attempts</dt>
          <dd>{stored?.failures ?? task.failures}</dd>
        </div>
        {stored && (
          <>
            <div>
              <dt>Journal</dt>
              <dd>{stored.entries === 1 ? '1 entry' : `${stored.entries} entries`}</dd>
            </div>
            {stored.worker !== undefined && stored.dueAt !== undefined && (
              <div>
                <dt>Lease</dt>
                <dd>{formatMs(Math.max(0, stored.dueAt - now))} left</dd>
              </div>
            )}
            <div>
              <dt>Owner</dt>
              <dd title={stored.owner.principal}>{stored.owner.principal.slice(0, 12)}</dd>
            </div>
            <div>
              <dt>Created</dt>
              <dd>
                <Ago at={stored.createdAt} now={now} />
              </dd>
            </div>
            <div>
              <dt>Polls</dt>
              <dd>
                {stored.polls === undefined ? (
                  'none'
                ) : (
                  <>
                    {stored.polls.count}, last <Ago at={stored.polls.at} now={now} />
                  </>
                )}
              </dd>
            </div>
          </>
        )}
      </dl>
      {state === 'asks' && task.questions && (
        <QuestionCard
          key={Object.keys(task.questions).join()}
          id={task.id}
          questions={task.questions}
          send={(answers) => send({ answers })}
        />
      )}
      <Deliver flow={flow} task={task} api={api} />
      {end && (
        <p class={end.isGood ? 'end-text' : 'end-text problem'}>{cleanText(end.text, 1_000, 'many')}</p>
      )}
      {problem !== '' && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </article>
  )
}
