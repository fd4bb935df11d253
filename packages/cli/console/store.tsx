/**
 * The page of `rondo console --store`: the tasks of a live store, one task, and the record of actions. Its address is
 * `#<token>/<view>/<id>`, as on the page of a server. Filters are not part of it: they may name people.
 *
 * Everything here was written by callers, authors or other operators: it is shown as text, cleaned and cut.
 */

import type { ComponentChildren, JSX } from 'preact'
import { render } from 'preact'
import { useCallback, useEffect, useMemo, useState } from 'preact/hooks'
import { cleanText } from 'rondo/forms'
import type {
  DeskLog,
  DeskPage,
  DeskReply,
  DeskStatus,
  DeskTask,
  DeskTools,
  DeskView,
} from '../src/console/store.ts'
import { createRequests, Refused, ReplyError, type Requests } from './api.ts'
import { Ago, Copy, Empty, keepFocus, Outcome, Panel } from './parts.tsx'

const VIEWS = [
  ['tasks', 'Tasks'],
  ['log', 'Log'],
  ['tools', 'Tools'],
] as const

const REFRESH_MS = 2_000
const PAGE_SIZE = 50

interface Place {
  readonly token: string
  readonly view: string
  readonly id: string
}

function readPlace(): Place {
  const [token = '', view = 'tasks', ...id] = location.hash.slice(1).split('/')
  return { token, view, id: decode(id.join('/')) }
}

/** An address that somebody wrote by hand may be no encoding at all. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

interface Desk {
  readonly requests: Requests
  readonly status: DeskStatus | undefined
  readonly link: (path: string) => string
  readonly now: number
  /** Reports whether the store could be read. */
  readonly lost: (why: string | undefined) => void
}

function App(): JSX.Element {
  const [place, setPlace] = useState(readPlace)
  const [now, setNow] = useState(Date.now)
  const [lost, setLost] = useState<string>()
  const [status, setStatus] = useState<DeskStatus>()
  const requests = useMemo(() => createRequests(place.token), [place.token])
  useEffect(() => {
    const moved = (): void => setPlace(readPlace())
    addEventListener('hashchange', moved)
    const timer = setInterval(() => setNow(Date.now()), 1_000)
    return () => {
      removeEventListener('hashchange', moved)
      clearInterval(timer)
    }
  }, [])
  useEffect(() => {
    requests.get<DeskStatus>('/api/status').then(setStatus, (error) => setLost(sayLost(error)))
  }, [requests])
  useEffect(() => {
    document.title = `${VIEWS.find(([view]) => view === place.view)?.[1] ?? 'Task'} · Rondo console`
  }, [place.view])
  const link = (path: string): string => `./#${place.token}/${path}`
  const desk: Desk = { requests, status, link, now, lost: setLost }
  return (
    <>
      <button type="button" class="skip-link" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the content
      </button>
      <header class="top">
        <p class="brand">
          Rondo <span>console</span>
        </p>
        <nav aria-label="Views">
          {VIEWS.map(([view, name]) => (
            <a
              key={view}
              href={link(view)}
              aria-current={
                place.view === view || (place.view === 'task' && view === 'tasks') ? 'page' : undefined
              }
            >
              {name}
            </a>
          ))}
        </nav>
        {status && (
          <p class="mcp">
            <code>{cleanText(status.store, 200)}</code>{' '}
            {status.who === undefined ? 'read-only' : `you act as ${cleanText(status.who, 80)}`}
          </p>
        )}
      </header>
      {lost !== undefined && (
        <p class="lost" role="alert">
          {lost}
        </p>
      )}
      <main id="main" tabIndex={-1}>
        {place.view === 'task' ? (
          <Task key={place.id} id={place.id} desk={desk} />
        ) : place.view === 'log' ? (
          <Log desk={desk} />
        ) : place.view === 'tools' ? (
          <Tools desk={desk} />
        ) : (
          <Tasks desk={desk} />
        )}
      </main>
    </>
  )
}

function sayLost(error: unknown): string {
  if (error instanceof Refused || error instanceof ReplyError) return (error as Error).message
  return 'The console cannot be reached. Start it again to continue.'
}

/**
 * The last reply to a request that is sent again while the page is in sight, and what was wrong with the request. A store that
 * does not answer is reported for the whole page, and the last reply stays.
 */
function useReply<T>(
  { lost }: Desk,
  read: () => Promise<T>,
): { reply: T | undefined; problem: string; refresh: () => Promise<void> } {
  const [reply, setReply] = useState<T>()
  const [problem, setProblem] = useState('')
  const [isCurrent] = useState({ read })
  isCurrent.read = read
  const refresh = useCallback(async (): Promise<void> => {
    try {
      const next = await read()
      if (isCurrent.read !== read) return
      setReply(next)
      setProblem('')
      lost(undefined)
    } catch (error) {
      if (isCurrent.read !== read) return
      const isMistake = error instanceof ReplyError && error.status < 500
      if (isMistake) setReply(undefined)
      setProblem(isMistake ? error.message : '')
      lost(isMistake ? undefined : sayLost(error))
    }
  }, [read])
  useEffect(() => {
    let isOver = false
    let timer = 0
    const loop = async (): Promise<void> => {
      if (document.visibilityState === 'visible') await refresh()
      if (!isOver) timer = window.setTimeout(() => void loop(), REFRESH_MS)
    }
    void loop()
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [refresh])
  return { reply, problem, refresh }
}

function Problem({ text }: { text: string }): JSX.Element | null {
  return text === '' ? null : (
    <p class="problem" role="alert">
      {cleanText(text, 1_000)}
    </p>
  )
}

/** The filters of the list, by the names of the options of `rondo tasks list`. */
const FILTERS = [
  ['tool', 'Tool', 'a name'],
  ['label', 'Label', 'NAME=VALUE'],
  ['owner', 'Owner', 'TENANT/TAG'],
  ['older-than', 'Older than', '30m, 12h, 7d'],
] as const

type Filters = Readonly<Record<string, string>>

function Tasks({ desk }: { desk: Desk }): JSX.Element {
  const { requests, status, now } = desk
  const [filters, setFilters] = useState<Filters>({})
  /** The places at which the pages after the first begin. */
  const [after, setAfter] = useState<readonly string[]>([])
  const read = useCallback(() => {
    const given = Object.entries(filters).filter(([, value]) => value !== '')
    const place = after.at(-1)
    const body = {
      ...Object.fromEntries(given.map(([name, value]) => [name, name === 'label' ? [value] : value])),
      limit: PAGE_SIZE,
      ...(place !== undefined && { after: place }),
    }
    return requests.post<DeskPage>('/api/list', body)
  }, [requests, filters, after])
  const { reply, problem } = useReply(desk, read)
  const filter = (name: string, value: string): void => {
    setFilters({ ...filters, [name]: value.trim() })
    setAfter([])
  }
  return (
    <section aria-labelledby="tasks-title">
      <div class="title">
        <h1 id="tasks-title">Tasks</h1>
        {reply && (
          <p class="count">
            {reply.stats.due} due, {reply.stats.running} running, {reply.stats.parked} parked
          </p>
        )}
      </div>
      <search class="filters">
        <label>
          Status{' '}
          <select
            value={filters.status ?? ''}
            onChange={({ currentTarget }) => filter('status', currentTarget.value)}
          >
            <option value="">all</option>
            {status?.statuses.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
        {FILTERS.map(([name, label, placeholder]) => (
          <label key={name}>
            {label}{' '}
            <input
              value={filters[name] ?? ''}
              placeholder={placeholder}
              autocomplete="off"
              onChange={({ currentTarget }) => filter(name, currentTarget.value)}
            />
          </label>
        ))}
      </search>
      <Problem text={problem} />
      {reply?.tasks.length === 0 && <Empty>The store has no such tasks.</Empty>}
      {reply && reply.tasks.length > 0 && (
        <TaskTable
          tasks={reply.tasks}
          desk={desk}
          now={now}
          filterOwner={(owner) => filter('owner', owner)}
        />
      )}
      {reply && (
        <p class="buttons">
          <button
            type="button"
            aria-disabled={after.length === 0 || undefined}
            onClick={() => setAfter(after.slice(0, -1))}
          >
            Newer
          </button>
          <button
            type="button"
            aria-disabled={reply.next === undefined || undefined}
            onClick={() => reply.next !== undefined && setAfter([...after, reply.next])}
          >
            Older
          </button>{' '}
          <span>Page {after.length + 1}</span>
        </p>
      )}
    </section>
  )
}

function TaskTable({
  tasks,
  desk,
  now,
  filterOwner,
}: {
  tasks: readonly DeskTask[]
  desk: Desk
  now: number
  filterOwner: (owner: string) => void
}): JSX.Element {
  return (
    <section class="panel journal" aria-label="List of tasks" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {['Task', 'Status', 'Begun', 'Waits for', 'Failures', 'Entries', 'Worker', 'Owner'].map(
              (name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          {tasks.map((task) => (
            <tr key={task.id}>
              <th scope="row">
                <a href={desk.link(`task/${encodeURIComponent(task.id)}`)}>
                  <code>{cleanText(task.id, 60)}</code>
                </a>
                {task.tool !== undefined && <small> {cleanText(task.tool, 60)}</small>}
                {task.damaged && <small class="problem"> damaged: no worker can run it</small>}
              </th>
              <td>
                <Outcome outcome={task.status} />
              </td>
              <td>
                <Ago at={task.createdAt} now={now} />
              </td>
              <td>{cleanText(task.waits, 120)}</td>
              <td class="number">{task.failures}</td>
              <td class="number">{task.entries}</td>
              <td>{cleanText(task.worker ?? '-', 40)}</td>
              <td>
                <button
                  type="button"
                  class="quiet"
                  title="Only the tasks of this owner"
                  onClick={() => filterOwner(task.owner)}
                >
                  {cleanText(task.owner, 24)}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  )
}

const isOpen = ({ status }: DeskTask): boolean => status === 'working' || status === 'input_required'

function Task({ id, desk }: { id: string; desk: Desk }): JSX.Element {
  const { requests, status, now, link } = desk
  const read = useCallback(() => requests.post<DeskView>('/api/show', { id }), [requests, id])
  const { reply, problem, refresh } = useReply(desk, read)
  const actions = useActions(desk, refresh)
  const task = reply?.task
  const canBranch = status?.who !== undefined && status.hasKeys && task?.status === 'failed'
  return (
    <section aria-labelledby="task-title">
      <p class="crumbs">
        <a href={link('tasks')}>Tasks</a>
      </p>
      <div class="title">
        <h1 id="task-title">
          {task && <Outcome outcome={task.status} />} <code>{cleanText(id, 100)}</code>
        </h1>
        <Copy text={id} label="Copy the id of the task" />
      </div>
      <Problem text={problem} />
      {task && status?.who !== undefined && (
        <TaskActions task={task} actions={actions} hasKeys={status.hasKeys} />
      )}
      <ActionReport actions={actions} />
      {task && (
        <Panel title="Task" id="facts-title">
          <dl class="facts">
            <Fact name="Waits for">{cleanText(task.waits, 500)}</Fact>
            <Fact name="Begun">
              <Ago at={task.createdAt} now={now} />
            </Fact>
            <Fact name="Changed">
              <Ago at={task.updatedAt} now={now} />
            </Fact>
            <Fact name="Expires">{sayDate(task.expiresAt)}</Fact>
            <Fact name="Failures">{task.failures}</Fact>
            <Fact name="Worker">{cleanText(task.worker ?? '-', 80)}</Fact>
            {task.dueAt !== undefined && (
              <Fact name={task.worker === undefined ? 'Due' : 'Lease until'}>{sayDate(task.dueAt)}</Fact>
            )}
            <Fact name="Open questions">{cleanText(task.openKeys.join(', ') || '-', 500)}</Fact>
            <Fact name="Open hooks">{cleanText(task.openHooks.join(', ') || '-', 500)}</Fact>
            <Fact name="Journal entries">{task.entries}</Fact>
            {task.keptUntil !== undefined && <Fact name="Journal kept until">{sayDate(task.keptUntil)}</Fact>}
            {task.tool !== undefined && <Fact name="Tool">{cleanText(task.tool, 200)}</Fact>}
            <Fact name="Owner">{cleanText(task.owner, 300)}</Fact>
          </dl>
        </Panel>
      )}
      {reply && !status?.hasKeys && (
        <Empty>Tool, journal and questions are sealed. Start the console with --keys to open them.</Empty>
      )}
      {reply && reply.opened.length > 0 && (
        <Panel title="Opened with the keys" id="opened-title">
          <dl class="facts">
            {reply.opened.map(([name, value]) => (
              <Fact key={name} name={cleanText(name, 60)}>
                <code>{cleanText(value, 2_100)}</code>
              </Fact>
            ))}
          </dl>
        </Panel>
      )}
      {reply && reply.journal.length > 0 && (
        <Panel title="Journal" id="journal-title">
          <table>
            <thead>
              <tr>
                <th scope="col">Entry</th>
                <th scope="col">Kind</th>
                <th scope="col">Recorded</th>
                <th scope="col">Values</th>
              </tr>
            </thead>
            <tbody>
              {reply.journal.map(({ kind, key, at, values }, i) => (
                <tr key={i}>
                  <th scope="row">
                    {cleanText(key, 200)}{' '}
                    {canBranch && (kind === 'step' || kind === 'effect') && (
                      <button
                        type="button"
                        class="quiet"
                        onClick={() => void actions.send({ action: 'retry', subject: id, from: key })}
                      >
                        Retry from here
                      </button>
                    )}
                  </th>
                  <td>{cleanText(kind, 40)}</td>
                  <td>{cleanText(at, 40)}</td>
                  <td>{values !== undefined && <code>{cleanText(values, 2_100)}</code>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Panel>
      )}
    </section>
  )
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

function sayDate(ms: number): string {
  const date = new Date(ms)
  return Number.isNaN(date.getTime()) ? 'unknown' : date.toLocaleString()
}

interface Request {
  readonly action: string
  readonly subject: string
  readonly message?: string
  readonly from?: string
  readonly yes?: true
}

interface Actions {
  send(request: Request): Promise<void>
  readonly reply: DeskReply | undefined
  readonly problem: string
  /** The request that a person has to confirm. */
  readonly asked: Request | undefined
  dismiss(): void
}

function useActions({ requests }: Desk, changed: () => Promise<void>): Actions {
  const [reply, setReply] = useState<DeskReply>()
  const [problem, setProblem] = useState('')
  const [asked, setAsked] = useState<Request>()
  const [isBusy, setBusy] = useState(false)
  const send = async (request: Request): Promise<void> => {
    if (isBusy) return
    setBusy(true)
    setProblem('')
    setReply(undefined)
    try {
      const next = await requests.post<DeskReply>('/api/act', request)
      setReply(next)
      setAsked(next.kind === 'confirm' ? request : undefined)
    } catch (error) {
      setAsked(undefined)
      // A change whose reply was lost may have been made; making it again changes nothing.
      const isUnsure = !(error instanceof ReplyError) || error.status >= 500
      setProblem(
        isUnsure ? `${sayLost(error)} Try again: a change that was made is not made twice.` : sayLost(error),
      )
    } finally {
      setBusy(false)
    }
    await changed()
  }
  const dismiss = (): void => {
    setReply(undefined)
    setAsked(undefined)
  }
  return { send, reply, problem, asked, dismiss }
}

/** The outcome of the last action, or what has to be confirmed before it. */
function ActionReport({ actions }: { actions: Actions }): JSX.Element {
  const { reply, problem, asked, send, dismiss } = actions
  return (
    <>
      <p role="status" class={reply?.kind === 'changed' && reply.outcome === 'done' ? 'good' : undefined}>
        {reply?.kind === 'changed' ? cleanText(reply.says, 500) : ''}
      </p>
      {reply?.kind === 'confirm' && asked && (
        <Confirm
          text={reply.what}
          yes="Yes, start a new branch"
          onYes={() => void send({ ...asked, yes: true })}
          onNo={dismiss}
        />
      )}
      <Problem text={problem} />
    </>
  )
}

function Confirm({
  text,
  yes,
  onYes,
  onNo,
}: {
  text: string
  yes: string
  onYes: () => void
  onNo: () => void
}): JSX.Element {
  return (
    <fieldset class="panel card">
      <legend>Confirm</legend>
      <p class="message">{cleanText(text, 1_000)}</p>
      <p class="buttons">
        <button type="button" onClick={onNo}>
          No
        </button>
        <button type="button" class="primary" onClick={onYes}>
          {yes}
        </button>
      </p>
    </fieldset>
  )
}

/** The ends of a task are confirmed: a click is made by mistake more easily than a command. */
const ENDS = {
  cancel: ['Cancel', 'The task ends. It cannot be retried.'],
  fail: ['Fail', 'The task ends as failed. It keeps its journal for a day, and can be retried.'],
  purge: ['Purge', 'The task is deleted with everything that it kept.'],
} as const

function TaskActions({
  task,
  actions,
  hasKeys,
}: {
  task: DeskTask
  actions: Actions
  hasKeys: boolean
}): JSX.Element {
  const [ends, setEnds] = useState<keyof typeof ENDS>()
  const [message, setMessage] = useState('')
  const open = isOpen(task)
  const offered = (open ? ['cancel', 'fail'] : ['purge']) as readonly (keyof typeof ENDS)[]
  const [name, what] = ends === undefined ? ['', ''] : ENDS[ends]
  return (
    <>
      <p class="buttons">
        {offered.map((one) => (
          <button key={one} type="button" onClick={() => setEnds(one)}>
            {ENDS[one][0]}
          </button>
        ))}
        {task.status === 'failed' && (
          <button type="button" onClick={() => void actions.send({ action: 'retry', subject: task.id })}>
            Retry
          </button>
        )}
      </p>
      {ends === 'fail' && hasKeys && (
        <div class="field">
          <label for="message">Message for the owner (optional)</label>
          <input
            id="message"
            value={message}
            autocomplete="off"
            onInput={({ currentTarget }) => setMessage(currentTarget.value)}
          />
        </div>
      )}
      {ends !== undefined && (
        <Confirm
          text={what}
          yes={`Yes, ${name.toLowerCase()} it`}
          onYes={() => {
            setEnds(undefined)
            const why = ends === 'fail' && message.trim() !== '' ? { message: message.trim() } : {}
            void actions.send({ action: ends, subject: task.id, ...why })
          }}
          onNo={() => setEnds(undefined)}
        />
      )}
    </>
  )
}

function Log({ desk }: { desk: Desk }): JSX.Element {
  const { requests, now, link } = desk
  const read = useCallback(() => requests.get<DeskLog>('/api/log'), [requests])
  const { reply, problem } = useReply(desk, read)
  return (
    <section aria-labelledby="log-title">
      <div class="title">
        <h1 id="log-title">Log of actions</h1>
      </div>
      <Problem text={problem} />
      {reply?.actions.length === 0 && <Empty>Nobody has changed a task or a tool within 90 days.</Empty>}
      {reply && reply.actions.length > 0 && (
        <section class="panel journal" aria-label="Actions" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Who</th>
                <th scope="col">Action</th>
                <th scope="col">Task or tool</th>
              </tr>
            </thead>
            <tbody>
              {reply.actions.map(({ at, who, action, subject }, i) => (
                <tr key={i}>
                  <td>
                    <Ago at={at} now={now} />
                  </td>
                  <td>{cleanText(who, 100)}</td>
                  <td>{action}</td>
                  <td>
                    {action === 'pause' || action === 'continue' ? (
                      cleanText(subject, 100)
                    ) : (
                      <a href={link(`task/${encodeURIComponent(subject)}`)}>
                        <code>{cleanText(subject, 60)}</code>
                      </a>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </section>
  )
}

function Tools({ desk }: { desk: Desk }): JSX.Element {
  const { requests, status } = desk
  const [tool, setTool] = useState('')
  const read = useCallback(() => requests.get<DeskTools>('/api/tools'), [requests])
  const { reply, problem, refresh } = useReply(desk, read)
  const actions = useActions(desk, refresh)
  return (
    <section aria-labelledby="tools-title">
      <div class="title">
        <h1 id="tools-title">Tools</h1>
      </div>
      <Empty>
        While a tool is paused, no instance starts a turn of its tasks. Calls still create tasks, and all of
        them wait.
      </Empty>
      <Problem text={problem} />
      {reply && (
        <Panel title="Paused" id="paused-title">
          {reply.paused.length === 0 && <Empty>No tool is paused.</Empty>}
          <ul>
            {reply.paused.map((one) => (
              <li key={one}>{cleanText(one, 200)}</li>
            ))}
          </ul>
        </Panel>
      )}
      {status && status.who === undefined && (
        <Empty>This console is read-only. Start it with --act to pause a tool.</Empty>
      )}
      {status?.who !== undefined && !status.hasKeys && (
        <Empty>
          Tasks name their tool by a tag that depends on the keys: start the console with --keys too.
        </Empty>
      )}
      {status?.who !== undefined && status.hasKeys && (
        <form
          class="vote"
          onSubmit={(event) => {
            event.preventDefault()
            const action = (event as SubmitEvent).submitter?.getAttribute('value') ?? 'pause'
            void actions.send({ action, subject: tool.trim() })
          }}
        >
          <label for="tool">Tool</label>
          <input
            id="tool"
            value={tool}
            required
            autocomplete="off"
            onInput={({ currentTarget }) => setTool(currentTarget.value)}
          />
          <button type="submit" value="pause">
            Pause
          </button>
          <button type="submit" value="continue">
            Continue
          </button>
        </form>
      )}
      <ActionReport actions={actions} />
    </section>
  )
}

const app = document.getElementById('app')
if (app !== null) {
  app.replaceChildren()
  render(<App />, app)
  keepFocus(app)
}
