/** Findings about this server: what its calls showed, and what an examination found, each with the flow that showed it. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { Tool } from 'rondo/client'
import type { Api } from './api.ts'
import { VirtualList } from './list.tsx'
import { argumentsOf, type Finding, type Model } from './model.ts'
import { Ago, Empty, Outcome, Panel } from './parts.tsx'

export function Doctor({
  model,
  api,
  now,
  link,
  file,
}: {
  model: Model
  api: Api
  now: number
  link: (path: string) => string
  file: string
}): JSX.Element {
  const findings = useMemo(() => fold(model.findings), [model.findings])
  const { examined } = model
  return (
    <section aria-labelledby="doctor-title">
      <div class="title">
        <h1 id="doctor-title">Doctor</h1>
      </div>
      <Panel title="In the calls so far" id="seen-title">
        {findings.length === 0 ? (
          <Empty>
            Nothing is wrong with what was called so far. Call a tool, or examine the server below.
          </Empty>
        ) : (
          <VirtualList
            items={findings}
            keyOf={({ text }) => text}
            rowHeight={ROW}
            class="findings"
            label="Findings in the calls so far"
          >
            {(finding) => (
              <div class="finding">
                <Outcome outcome={finding.level} />
                <span>
                  {finding.text}
                  {finding.count > 1 && ` (${finding.count} times)`}{' '}
                  {finding.flow && <a href={link(`flow/${finding.flow}`)}>its flow</a>}
                </span>
                <Ago at={finding.at} now={now} />
              </div>
            )}
          </VirtualList>
        )}
      </Panel>
      <Panel title="Examination" id="examined-title">
        <Examine api={api} model={model} />
        {examined === undefined ? (
          <Empty>
            It sends what a hostile client would send, as <code>rondo doctor {file.split('/').at(-1)}</code>{' '}
            does: modified states, another caller, other arguments. Every question is declined.
          </Empty>
        ) : (
          <VirtualList
            items={examined.findings}
            keyOf={({ id }, i) => `${i} ${id}`}
            rowHeight={ROW}
            class="findings"
            label="Findings of the examination"
          >
            {({ id, verdict, detail, advice, flow }) => (
              <div class="finding">
                <Outcome outcome={verdict} />
                <span>
                  <strong>{id}</strong> {detail} {flow && <a href={link(`flow/${flow}`)}>its flow</a>}
                  {advice && <small>{advice}</small>}
                </span>
              </div>
            )}
          </VirtualList>
        )}
      </Panel>
    </section>
  )
}

/** Of a finding in one line. */
const ROW = 39

/** Equal findings as one, the latest first. */
function fold(findings: readonly Finding[]): (Finding & { readonly count: number })[] {
  const folded = new Map<string, Finding & { readonly count: number }>()
  for (const finding of findings) {
    const before = folded.get(finding.text)
    folded.delete(finding.text)
    folded.set(finding.text, { ...before, ...finding, count: (before?.count ?? 0) + 1 })
  }
  return [...folded.values()].reverse()
}

/** Chooses a tool that asks, with the arguments of its last call, and examines the server with it. */
function Examine({ api, model }: { api: Api; model: Model }): JSX.Element {
  const [tools, setTools] = useState<readonly Tool[]>([])
  const [name, setName] = useState('')
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState('')
  useEffect(() => {
    api.tools().then(setTools, (error) => setProblem((error as Error).message))
  }, [api])
  const asked = [...model.flows.values()].findLast(({ rounds }) =>
    rounds.some(({ event }) => event.outcome === 'input_required'),
  )
  const chosen = name || asked?.target || tools[0]?.name || ''
  const last = [...model.flows.values()].findLast((flow) => flow.target === chosen)
  const needs = tools.find((tool) => tool.name === chosen)?.inputSchema.required
  const isReady = last !== undefined || !Array.isArray(needs) || needs.length === 0

  async function run(): Promise<void> {
    if (busy) return
    setBusy(true)
    setProblem('')
    try {
      await api.examine({ tool: chosen, args: last ? argumentsOf(last) : {} })
    } catch (error) {
      setProblem((error as Error).message)
    } finally {
      setBusy(false)
    }
  }
  return (
    <form
      class="filters"
      onSubmit={(event) => {
        event.preventDefault()
        void run()
      }}
    >
      <label>
        <span>With the tool</span>
        <select value={chosen} onChange={(event) => setName(event.currentTarget.value)}>
          {tools.map((tool) => (
            <option key={tool.name}>{tool.name}</option>
          ))}
        </select>
      </label>
      <button
        type="submit"
        class="primary"
        disabled={chosen === '' || !isReady}
        aria-disabled={busy || undefined}
      >
        {busy ? 'Examining…' : 'Examine'}
      </button>
      {!isReady && <small>It needs arguments: call it once under Try, and they are used here.</small>}
      {problem !== '' && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </form>
  )
}
