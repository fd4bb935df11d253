/** Approvals: what waits for somebody else's decision, and a way to play that person. The pages of approvers have an origin of their own. */

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { cleanText } from 'rondo/forms'
import type { DeskReply, SeenRequest } from '../src/console/event.ts'
import type { Api } from './api.ts'
import { Ago, Empty, Outcome } from './parts.tsx'

const REFRESH_MS = 1_000

export function Approvals({
  api,
  now,
  link,
}: {
  api: Api
  now: number
  link: (path: string) => string
}): JSX.Element {
  const [reply, setReply] = useState<DeskReply>()
  const [problem, setProblem] = useState('')
  const refresh = async (): Promise<void> => {
    try {
      setReply(await api.approvals())
      setProblem('')
    } catch (error) {
      setProblem((error as Error).message)
    }
  }
  useEffect(() => {
    void refresh()
    const timer = setInterval(() => void refresh(), REFRESH_MS)
    return () => clearInterval(timer)
  }, [api])
  const requests = reply?.kind === 'requests' ? reply.requests : []
  const url = reply?.kind === 'requests' ? reply.url : undefined
  return (
    <section aria-labelledby="approvals-title">
      <div class="title">
        <h1 id="approvals-title">Approvals</h1>
        {url !== undefined && (
          <a href={url} target="_blank" rel="noreferrer">
            The approvers’ inbox
          </a>
        )}
      </div>
      {problem !== '' && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {reply?.kind === 'none' ? (
        <Empty>
          This server uses no approvals: <code>server.use(createApprovals(…))</code> of{' '}
          <code>@rondo/approvals</code>.
        </Empty>
      ) : (
        requests.length === 0 && (
          <Empty>
            Nothing waits for a decision. A tool asks for one with <code>ctx.approve</code>;{' '}
            <a href={link('try')}>Try</a> calls it.
          </Empty>
        )
      )}
      <ul class="tasks">
        {requests.map((request) => (
          <li key={request.id}>
            <Request {...{ request, api, now, link }} page={`${url}/r/${request.id}`} onVote={refresh} />
          </li>
        ))}
      </ul>
    </section>
  )
}

function Request({
  request,
  page,
  api,
  now,
  link,
  onVote,
}: {
  request: SeenRequest
  page: string
  api: Api
  now: number
  link: (path: string) => string
  onVote: () => Promise<void>
}): JSX.Element {
  const { id, key, task, tool, message, details, from, until, state, quorum, caller, createdAt } = request
  const votes = request.votes as readonly { name: string; approve: boolean; via: string }[]
  return (
    <article class="panel task">
      <header class="panel-head">
        <h2>
          <Outcome outcome={state === 'open' ? 'waiting' : state} /> {cleanText(message, 300)}
        </h2>
        <p class="buttons">
          <a href={link(`flow/${request.flow}`)}>its flow</a>
          <a href={page} target="_blank" rel="noreferrer">
            its page
          </a>
        </p>
      </header>
      <dl class="facts">
        <Fact name="Tool" value={tool} />
        <Fact name="Asked by" value={caller?.subject ?? 'an anonymous caller'} />
        <Fact name="Decided by" value={`${from.join(', ')}${quorum > 1 ? ` (${quorum} people)` : ''}`} />
        {Object.entries(details).map(([name, value]) => (
          <Fact key={name} name={name} value={typeof value === 'string' ? value : JSON.stringify(value)} />
        ))}
        {votes.map(({ name, approve, via }) => (
          <Fact key={name} name={approve ? 'Approved' : 'Denied'} value={`${name} (${via})`} />
        ))}
        <div>
          <dt>Asked</dt>
          <dd>
            <Ago at={createdAt} now={now} />
          </dd>
        </div>
        {state === 'open' && <Fact name="Open until" value={new Date(until).toLocaleString()} />}
      </dl>
      {state === 'open' && task !== undefined && (
        <Vote
          id={id}
          vote={async (approve, as) => {
            await api.vote({ task, key, approve, as })
            await onVote()
          }}
        />
      )}
    </article>
  )
}

function Fact({ name, value }: { name: string; value: string }): JSX.Element {
  return (
    <div>
      <dt>{cleanText(name, 60)}</dt>
      <dd>{cleanText(value, 500)}</dd>
    </div>
  )
}

/** Plays the approver: the same rules apply as on the page, and the record says that it was a test. */
function Vote({
  id,
  vote,
}: {
  id: string
  vote: (approve: boolean, as: string) => Promise<void>
}): JSX.Element {
  const [as, setAs] = useState('')
  const [problem, setProblem] = useState('')
  const send = async (approve: boolean): Promise<void> => {
    setProblem('')
    await vote(approve, as).catch((error: Error) => setProblem(error.message))
  }
  return (
    <form
      class="vote"
      onSubmit={(event) => {
        event.preventDefault()
        void send((event as SubmitEvent).submitter?.getAttribute('value') === 'approve')
      }}
    >
      <label for={`as-${id}`}>Decide as</label>
      <input
        id={`as-${id}`}
        value={as}
        required
        autocomplete="off"
        placeholder="the id of a member"
        onInput={({ currentTarget }) => setAs(currentTarget.value)}
      />
      <button type="submit" value="approve">
        Approve
      </button>
      <button type="submit" class="quiet" value="deny">
        Deny
      </button>
      {problem !== '' && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </form>
  )
}
