/** Calls a tool through the proxy, as any other client would. */

import type { JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { Tool } from 'rondo/client'
import { checkForm, cleanText, readForm } from 'rondo/forms'
import type { Api } from './api.ts'
import { type Model, sayCall } from './model.ts'
import { Copy, Empty, Fields, Json, Panel, startOf } from './parts.tsx'

const CLIENT = 'rondo-console'
type QuestionKind = 'form' | 'url' | 'sampling' | 'roots'

/** Characters of a text that are shown. */
const MAX_TEXT = 20_000
const KINDS: readonly QuestionKind[] = ['form', 'url', 'sampling', 'roots']

export function Try({
  api,
  model,
  go,
  link,
  mcp,
}: {
  api: Api
  model: Model
  go: (path: string) => void
  link: (path: string) => string
  mcp: string
}): JSX.Element {
  const [tools, setTools] = useState<readonly Tool[]>()
  const [name, setName] = useState('')
  const [values, setValues] = useState<Record<string, unknown>>({})
  const [json, setJson] = useState<string>()
  const [problems, setProblems] = useState<Record<string, string>>({})
  const [principal, setPrincipal] = useState('')
  const [mode, setMode] = useState('auto')
  const [accepts, setAccepts] = useState<readonly QuestionKind[]>(KINDS)
  const [outcome, setOutcome] = useState<{ error?: string; result?: unknown }>({})
  const [busy, setBusy] = useState(false)
  const [sent, setSent] = useState<number>()

  useEffect(() => {
    const load = async (): Promise<void> => {
      const found = await api.tools()
      setTools(found)
      setName((before) => (before === '' ? (found[0]?.name ?? '') : before))
    }
    load().catch((error) => setOutcome({ error: (error as Error).message }))
  }, [api])

  const tool = tools?.find((one) => one.name === name)
  const { fields } = useMemo(() => readForm(tool?.inputSchema ?? {}), [tool])
  const isPlain = fields.every(({ unsupported }) => unsupported === undefined)
  const latest = [...model.flows.values()].findLast((flow) => flow.client === CLIENT)

  // The flow of the call appears when its first round has been reported.
  useEffect(() => {
    if (sent === undefined || latest === undefined || (latest.rounds[0]?.began ?? 0) < sent - 50) return
    setSent(undefined)
    if (latest.rounds.at(-1)?.event.outcome !== 'complete') go(`flow/${latest.id}`)
  }, [sent, latest])

  async function call(): Promise<void> {
    if (busy) return
    setProblems({})
    setOutcome({})
    let args: Record<string, unknown>
    if (json !== undefined || !isPlain) {
      try {
        args = JSON.parse(json ?? '{}')
      } catch {
        return setProblems({ json: 'This is not JSON' })
      }
    } else {
      const checked = checkForm(fields, { ...startOf(fields), ...values })
      if (!checked.ok)
        return setProblems(Object.fromEntries(checked.problems.map((one) => [one.name, one.message])))
      args = checked.content
    }
    setBusy(true)
    setSent(Date.now())
    try {
      const done = await api.call({ name, args, mode, accepts, ...(principal !== '' && { principal }) })
      if (done.status === 'complete') setOutcome({ result: done.result })
      if (done.status === 'error') setOutcome({ error: done.message })
    } catch (error) {
      setOutcome({ error: (error as Error).message })
    } finally {
      setBusy(false)
    }
  }

  const command = sayCall(mcp, name, words(json, fields, values))
  return (
    <section class="try" aria-labelledby="try-title">
      <div class="title">
        <h1 id="try-title">Try</h1>
      </div>
      {tools?.length === 0 && (
        <Empty>This server has no tools. Add one with server.tool(…) and save the file.</Empty>
      )}
      <form
        class="try-grid"
        onSubmit={(event) => {
          event.preventDefault()
          void call()
        }}
      >
        <Panel title="Call a tool" id="call-title">
          <div class="field">
            <label for="tool">Tool</label>
            <select
              id="tool"
              value={name}
              onChange={(event) => {
                setName(event.currentTarget.value)
                setValues({})
                setJson(undefined)
              }}
            >
              {tools?.map((one) => (
                <option key={one.name} value={one.name}>
                  {cleanText(one.name, 128)}
                </option>
              ))}
            </select>
            {tool?.description && <small>{cleanText(tool.description, MAX_TEXT, 'many')}</small>}
          </div>
          {json === undefined && isPlain ? (
            <Fields
              id="args"
              fields={fields}
              values={{ ...startOf(fields), ...values }}
              problems={problems}
              change={(field, value) => setValues({ ...values, [field]: value })}
            />
          ) : (
            <div class="field">
              <label for="args-json">Arguments as JSON</label>
              <textarea
                id="args-json"
                rows={6}
                value={json ?? '{}'}
                onInput={(event) => setJson(event.currentTarget.value)}
              />
              {problems.json && <small class="problem">{problems.json}</small>}
            </div>
          )}
          <div class="buttons">
            <button
              type="submit"
              class="primary"
              disabled={tool === undefined}
              aria-disabled={busy || undefined}
            >
              {busy ? 'Calling…' : 'Call'}
            </button>
            {isPlain && (
              <button
                type="button"
                class="quiet"
                onClick={() => setJson(json === undefined ? '{}' : undefined)}
              >
                {json === undefined ? 'Arguments as JSON' : 'Arguments as a form'}
              </button>
            )}
          </div>
          <p class="command">
            <small>The same from a terminal:</small> <code>{command}</code>{' '}
            <Copy text={command} label="Copy the command" />
          </p>
        </Panel>
        <Panel title="As which client" id="client-title">
          <div class="field">
            <label for="principal">Principal</label>
            <select
              id="principal"
              value={principal}
              onChange={(event) => setPrincipal(event.currentTarget.value)}
            >
              <option value="">nobody</option>
              <option value="A">A</option>
              <option value="B">B</option>
            </select>
            <small>Who calls. A state of A is refused if B sends it.</small>
          </div>
          <div class="field">
            <label for="mode">Revision</label>
            <select id="mode" value={mode} onChange={(event) => setMode(event.currentTarget.value)}>
              {['auto', '2026-07-28', '2025-11-25', 'DRAFT-2026-v1'].map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </div>
          <fieldset>
            <legend>It can be asked for</legend>
            {KINDS.map((kind) => (
              <label key={kind} class="check">
                <input
                  type="checkbox"
                  checked={accepts.includes(kind)}
                  onChange={(event) =>
                    setAccepts(
                      event.currentTarget.checked
                        ? [...accepts, kind]
                        : accepts.filter((one) => one !== kind),
                    )
                  }
                />{' '}
                {kind}
              </label>
            ))}
          </fieldset>
        </Panel>
      </form>
      <div aria-live="polite">
        {outcome.error && <p class="problem">{cleanText(outcome.error, MAX_TEXT, 'many')}</p>}
        {outcome.result !== undefined && (
          <Panel
            title="Result"
            id="result-title"
            aside={latest && <a href={link(`flow/${latest.id}`)}>See its flow</a>}
          >
            <Json value={outcome.result} />
          </Panel>
        )}
      </div>
    </section>
  )
}

/** The arguments as one would type them. */
function words(
  json: string | undefined,
  fields: readonly { readonly name: string; readonly required: boolean }[],
  values: Readonly<Record<string, unknown>>,
): string[] {
  if (json !== undefined) return sayJson(json)
  return fields.flatMap(({ name, required }) => {
    const value = values[name]
    if (value === undefined || value === '') return required ? [`${name}=…`] : []
    return [Array.isArray(value) ? `${name}:=${JSON.stringify(value)}` : `${name}=${String(value)}`]
  })
}

function sayJson(json: string): string[] {
  try {
    const entries = Object.entries(JSON.parse(json) as object)
    return entries.map(([name, value]) => `${name}:=${JSON.stringify(value)}`)
  } catch {
    return ['…']
  }
}
