/** Tasks: their state, the turns that ran them and where, and their questions. Polls that saw nothing new are left out. */

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Api } from './api.ts'
import type { Model, Task } from './model.ts'
import { Empty, formatMs, QuestionCard, type Responses } from './parts.tsx'

export function Tasks({
  model,
  api,
  link,
}: {
  model: Model
  api: Api
  link: (path: string) => string
}): JSX.Element {
  const tasks = [...model.tasks.values()].reverse()
  return (
    <section aria-labelledby="tasks-title">
      <h1 id="tasks-title">Tasks</h1>
      {tasks.length === 0 && (
        <Empty>
          No task yet. A call becomes one when its tool calls <code>ctx.background()</code>, the server has a
          store, and the client can follow tasks.
        </Empty>
      )}
      <ul class="tasks">
        {tasks.map((task) => (
          <TaskRow key={task.id} task={task} api={api} link={link} />
        ))}
      </ul>
    </section>
  )
}

function TaskRow({ task, api, link }: { task: Task; api: Api; link: (path: string) => string }): JSX.Element {
  const [problem, setProblem] = useState('')
  const send = async (change: { answers?: Responses; cancel?: boolean }): Promise<void> => {
    setProblem('')
    try {
      await api.task(task.id, change)
    } catch (error) {
      setProblem((error as Error).message)
    }
  }
  const last = task.turns.at(-1)
  return (
    <li class="card">
      <h2>
        <span class={`outcome ${task.status}`}>{task.status.replace('_', ' ')}</span> <code>{task.id}</code>
      </h2>
      <p>
        {task.message ? `${task.message}. ` : ''}
        {task.turns.length === 1 ? '1 turn' : `${task.turns.length} turns`}
        {last ? `, the last on ${last.instance} (${last.outcome}, ${formatMs(last.ms)})` : ''}
        {task.failures > 0 ? `, ${task.failures} failed` : ''}
        {task.flow ? (
          <>
            {' · '}
            <a href={link(`flow/${task.flow}`)}>its flow</a>
          </>
        ) : (
          ''
        )}
      </p>
      {task.status === 'input_required' && task.questions && (
        <QuestionCard
          key={Object.keys(task.questions).join()}
          id={task.id}
          questions={task.questions}
          send={(answers) => send({ answers })}
        />
      )}
      <div class="buttons">
        <button type="button" onClick={() => void send({})}>
          Poll
        </button>
        <button type="button" onClick={() => void send({ cancel: true })}>
          Cancel the task
        </button>
      </div>
      {problem !== '' && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </li>
  )
}
