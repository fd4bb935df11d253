/** The page of `rondo console`. Its address is `#<token>/<view>/<id>`: the token stays in the page, the rest is where one is. */

import { type JSX, render } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { EXPECTED, type Served } from '../src/console/event.ts'
import { createApi, type Status } from './api.ts'
import { Approvals } from './approvals.tsx'
import { Doctor } from './doctor.tsx'
import { ActionList, FlowView } from './flow.tsx'
import { Flows } from './flows.tsx'
import { apply, EMPTY, stateOf } from './model.ts'
import { Badge, Copy, keepFocus } from './parts.tsx'
import { Tasks } from './tasks.tsx'
import { Try } from './try.tsx'

const VIEWS = [
  ['flows', 'Flows'],
  ['try', 'Try'],
  ['tasks', 'Tasks'],
  ['approvals', 'Approvals'],
  ['doctor', 'Doctor'],
] as const

interface Place {
  readonly token: string
  readonly view: string
  readonly id: string
}

function readPlace(): Place {
  const [token = '', view = 'flows', ...id] = location.hash.slice(1).split('/')
  return { token, view, id: id.join('/') }
}

const TICK_MS = 1_000
const SHOWN_MS = 8_000
/** From this width on, the list of flows stays beside the flow. */
const BESIDE = '(min-width: 1700px)'
const UNKNOWN: Served = { exported: { name: 'default', isFunction: false }, isOfficial: false, routes: [] }

function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches)
  useEffect(() => {
    const media = matchMedia(query)
    const changed = (): void => setMatches(media.matches)
    media.addEventListener('change', changed)
    return () => media.removeEventListener('change', changed)
  }, [query])
  return matches
}

function App(): JSX.Element {
  const [place, setPlace] = useState(readPlace)
  const [model, setModel] = useState(EMPTY)
  const [now, setNow] = useState(Date.now)
  const [lost, setLost] = useState<string>()
  const [status, setStatus] = useState<Status>()
  const api = useMemo(() => createApi(place.token), [place.token])
  const isBeside = useMedia(BESIDE)

  useEffect(() => {
    const moved = (): void => setPlace(readPlace())
    addEventListener('hashchange', moved)
    const timer = setInterval(() => setNow(Date.now()), TICK_MS)
    return () => {
      removeEventListener('hashchange', moved)
      clearInterval(timer)
    }
  }, [])
  useEffect(() => {
    const stop = new AbortController()
    api.follow(
      (events) => {
        setModel((before) => apply(before, events))
        setNow(Date.now())
      },
      setLost,
      stop.signal,
    )
    api.status().then(setStatus, () => {})
    return () => stop.abort()
  }, [api])
  const flow = place.view === 'flow' ? model.flows.get(place.id) : undefined
  useEffect(() => {
    const name = flow?.target ?? VIEWS.find(([view]) => view === place.view)?.[1] ?? 'Flows'
    document.title = `${name} · Rondo console`
  }, [place.view, flow?.target])

  // Not a bare fragment: a page whose links all begin with # has nothing but skip links.
  const link = (path: string): string => `./#${place.token}/${path}`
  const go = (path: string): void => {
    location.href = link(path)
  }
  // The page may have been opened as localhost or [::1]; only its own origin may be called.
  const mcp = `${location.origin}/mcp`
  const file = status?.file ?? 'server.ts'
  const common = { model, now, link, mcp, file }
  const open = [...model.tasks.values()].filter((task) => stateOf(task, now).state !== 'ended').length
  const counts: Readonly<Record<string, number>> = {
    flows: model.flows.size,
    tasks: open,
    doctor: new Set(model.findings.map(({ text }) => text)).size,
  }
  return (
    <>
      <button type="button" class="skip-link" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the content
      </button>
      <header class="top">
        <p class="brand">
          <svg viewBox="0 0 20 20" aria-hidden="true">
            <path d="M10 3a7 7 0 1 1-6.6 4.7" />
            <path d="M3 3v5h5" />
          </svg>
          Rondo <span>console</span>
        </p>
        <nav aria-label="Views">
          {VIEWS.map(([view, name]) => (
            <a
              key={view}
              href={link(view)}
              aria-current={
                place.view === view || (place.view === 'flow' && view === 'flows') ? 'page' : undefined
              }
            >
              {name}
              {(counts[view] ?? 0) > 0 && <span class="number"> {counts[view]}</span>}
            </a>
          ))}
        </nav>
        <p class="mcp">
          <span title={file}>{file.split(/[/\\]/).at(-1)}</span> <code>{mcp}</code>
          <Copy text={mcp} label="Copy the MCP address" />
        </p>
      </header>
      {lost !== undefined && (
        <p class="lost" role="alert">
          {lost}
        </p>
      )}
      <Instances
        model={model}
        now={now}
        act={(kind, instance) => void api.act(kind, { instance }).catch(() => {})}
      />
      <main id="main" tabIndex={-1} class={place.view === 'flow' && isBeside ? 'beside' : undefined}>
        {place.view === 'flow' && isBeside && <Flows {...common} chosen={place.id} />}
        {place.view === 'flow' ? (
          <FlowView {...common} key={place.id} id={place.id} api={api} served={status ?? UNKNOWN} />
        ) : place.view === 'try' ? (
          <Try {...common} api={api} go={go} />
        ) : place.view === 'tasks' ? (
          <Tasks {...common} api={api} />
        ) : place.view === 'approvals' ? (
          <Approvals {...common} api={api} />
        ) : place.view === 'doctor' ? (
          <Doctor {...common} api={api} />
        ) : (
          <Flows {...common} />
        )}
      </main>
    </>
  )
}

function Instances({
  model,
  now,
  act,
}: {
  model: typeof EMPTY
  now: number
  act: (kind: 'kill' | 'drain' | 'start', instance: string) => void
}): JSX.Element {
  const [closed, setClosed] = useState<string>()
  const last = [...model.actions.values()].findLast(
    ({ flow, kind }) => flow === undefined && kind !== 'start',
  )
  // A report of success is read in a few seconds; a report of failure stays until somebody has read it.
  const isOver = last?.ok === true && now - (last.endedAt ?? now) > SHOWN_MS
  const shown = last === undefined || isOver || closed === last.id ? undefined : last
  return (
    <aside aria-label="Instances">
      <ul class="instances">
        {[...model.instances.values()].map(({ name, state, pid, note }) => (
          <li key={name} class={state}>
            <Badge name={name} /> <span class="state">{state}</span>
            <small title={note}>{state === 'down' ? note?.slice(0, 40) : pid && `pid ${pid}`}</small>
            {/* Both buttons are there in every state: one that went away would take the focus with it. */}
            <button
              type="button"
              class="quiet"
              onClick={() => act(state === 'down' ? 'start' : 'kill', name)}
              aria-label={state === 'down' ? `Start instance ${name}` : `Kill ${name} with signal 9`}
              title={state === 'down' ? EXPECTED.start : EXPECTED['kill-instance']}
            >
              {state === 'down' ? 'Start' : 'Kill'}
            </button>
            <button
              type="button"
              class="quiet"
              onClick={() => state === 'up' && act('drain', name)}
              aria-disabled={state === 'up' ? undefined : true}
              aria-label={`Drain instance ${name}`}
              title={EXPECTED.drain}
            >
              Drain
            </button>
          </li>
        ))}
      </ul>
      {shown && (
        <div class="notice">
          <ActionList actions={[shown]} />
          <button
            type="button"
            class="quiet"
            onClick={() => setClosed(shown.id)}
            aria-label="Close this message"
          >
            Close
          </button>
        </div>
      )}
    </aside>
  )
}

function start(): void {
  const app = document.getElementById('app')
  if (app === null) return
  app.replaceChildren()
  render(<App />, app)
  keepFocus(app)
}

// The frame of the page is painted first: drawing the view must not delay it. A page in the background has no frames.
if (document.visibilityState === 'hidden') start()
else requestAnimationFrame(() => setTimeout(start))
