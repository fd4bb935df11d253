/** The page of `rondo console`. Its address is `#<token>/<view>/<id>`: the token stays in the page, the rest is where one is. */

import { type JSX, render } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { createApi, type Status } from './api.ts'
import { Doctor } from './doctor.tsx'
import { ActionList, FlowView } from './flow.tsx'
import { Flows } from './flows.tsx'
import { apply, EMPTY } from './model.ts'
import { Tasks } from './tasks.tsx'
import { Try } from './try.tsx'

const VIEWS = [
  ['flows', 'Flows'],
  ['try', 'Try'],
  ['tasks', 'Tasks'],
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

function App(): JSX.Element {
  const [place, setPlace] = useState(readPlace)
  const [model, setModel] = useState(EMPTY)
  const [now, setNow] = useState(Date.now)
  const [lost, setLost] = useState<string>()
  const [status, setStatus] = useState<Status>()
  const api = useMemo(() => createApi(place.token), [place.token])

  useEffect(() => {
    const moved = (): void => setPlace(readPlace())
    addEventListener('hashchange', moved)
    return () => removeEventListener('hashchange', moved)
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

  const link = (path: string): string => `#${place.token}/${path}`
  const go = (path: string): void => {
    location.hash = link(path)
  }
  // The page may have been opened as localhost or [::1]; only its own origin may be called.
  const mcp = `${location.origin}/mcp`
  const file = status?.file ?? 'server.ts'
  const common = { model, now, link, mcp, file }
  return (
    <>
      <header>
        <strong>Rondo console</strong>
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
              {view === 'doctor' && model.findings.length > 0 ? ` (${model.findings.length})` : ''}
            </a>
          ))}
        </nav>
        <code class="mcp">{mcp}</code>
      </header>
      {lost !== undefined && (
        <p class="lost" role="alert">
          {lost}
        </p>
      )}
      <Instances model={model} act={(kind, instance) => void api.act(kind, { instance }).catch(() => {})} />
      <main>
        {place.view === 'flow' ? (
          <FlowView {...common} key={place.id} id={place.id} api={api} />
        ) : place.view === 'try' ? (
          <Try api={api} model={model} go={go} />
        ) : place.view === 'tasks' ? (
          <Tasks {...common} api={api} />
        ) : place.view === 'doctor' ? (
          <Doctor {...common} />
        ) : (
          <Flows {...common} />
        )}
      </main>
    </>
  )
}

function Instances({
  model,
  act,
}: {
  model: typeof EMPTY
  act: (kind: 'kill' | 'drain' | 'start', instance: string) => void
}): JSX.Element {
  const actions = [...model.actions.values()]
    .filter(({ flow, kind }) => flow === undefined && kind !== 'start')
    .slice(-1)
  return (
    <aside aria-label="Instances">
      <ul class="instances">
        {[...model.instances.values()].map(({ name, state, pid, note }) => (
          <li key={name} class={state}>
            <strong>{name}</strong> <span>{state}</span>{' '}
            <small>{state === 'down' ? note : pid && `pid ${pid}`}</small>
            {state === 'down' ? (
              <button type="button" onClick={() => act('start', name)} aria-label={`Start instance ${name}`}>
                Start
              </button>
            ) : (
              <>
                <button
                  type="button"
                  onClick={() => act('kill', name)}
                  aria-label={`Kill ${name} with signal 9`}
                >
                  Kill
                </button>
                <button
                  type="button"
                  onClick={() => act('drain', name)}
                  aria-label={`Drain instance ${name}`}
                >
                  Drain
                </button>
              </>
            )}
          </li>
        ))}
      </ul>
      {actions.length > 0 && <ActionList actions={actions} />}
    </aside>
  )
}

const app = document.getElementById('app')
if (app) {
  app.replaceChildren()
  render(<App />, app)
}
