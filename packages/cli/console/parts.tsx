/** Small parts that several views use: times, sizes, outcomes, forms drawn from a schema, and the focus. */

import type { ComponentChildren, JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { Field } from 'rondo/forms'
import { checkForm, cleanText, readForm, startValues } from 'rondo/forms'
import type { Questions } from './model.ts'

export function formatMs(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  return ms < 60_000
    ? `${(ms / 1_000).toFixed(1)} s`
    : `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`
}

export function formatBytes(bytes: number): string {
  return bytes < 1_024 ? `${bytes} B` : `${(bytes / 1_024).toFixed(1)} kB`
}

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

/** A relative time, with the exact one on hover. */
export function Ago({ at, now }: { at: number; now: number }): JSX.Element {
  // A damaged row of a store may have any number.
  if (Number.isNaN(new Date(at).getTime())) return <span>unknown</span>
  const s = Math.max(0, Math.round((now - at) / 1_000))
  const text =
    s < 2
      ? 'just now'
      : s < 60
        ? `${s} s ago`
        : s < 3_600
          ? `${Math.floor(s / 60)} min ago`
          : `${Math.floor(s / 3_600)} h ago`
  return (
    <time dateTime={new Date(at).toISOString()} title={EXACT.format(at)}>
      {text}
    </time>
  )
}

const OUTCOMES: Readonly<Record<string, string>> = {
  tool_error: 'tool error',
  input_required: 'asks',
  held: 'held for its client',
}

/** The state of a round, a flow or a task, as a word on its colour. */
export function Outcome({ outcome }: { outcome: string }): JSX.Element {
  return <span class={`outcome ${outcome}`}>{OUTCOMES[outcome] ?? outcome}</span>
}

/** An instance, with a colour of its own wherever it appears. */
export function Badge({ name }: { name: string }): JSX.Element {
  return <span class={`badge i${hueOf(name)}`}>{name}</span>
}

export function hueOf(name: string): number {
  return (name.charCodeAt(0) - 65 + 6) % 6
}

/** Text to take along; says when it was copied. */
export function Copy({ text, label }: { text: string; label: string }): JSX.Element {
  const [done, setDone] = useState(false)
  return (
    <button
      type="button"
      class="quiet copy"
      aria-label={label}
      onClick={() =>
        void navigator.clipboard?.writeText(text).then(
          () => setDone(true),
          () => {},
        )
      }
      onBlur={() => setDone(false)}
    >
      {done ? 'Copied' : 'Copy'}
    </button>
  )
}

/** JSON in one line, without what everybody knows. */
export function brief(value: unknown): string {
  if (typeof value !== 'object' || value === null)
    return typeof value === 'string' ? value : JSON.stringify(value)
  const { action, content } = value as { action?: unknown; content?: unknown }
  if (action === 'accept') return content === undefined ? 'accepted' : brief(content)
  if (action === 'decline' || action === 'cancel') return action === 'decline' ? 'declined' : 'cancelled'
  if (Array.isArray(value)) return JSON.stringify(value)
  return Object.entries(value)
    .map(([name, one]) => `${name}: ${typeof one === 'string' ? one : JSON.stringify(one)}`)
    .join(', ')
}

/** Says what to do where there is nothing to see yet. */
export function Empty({ children }: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{children}</p>
}

/** A heading with what belongs to it in a box. */
export function Panel({
  title,
  id,
  children,
  aside,
}: {
  title: string
  id: string
  children: ComponentChildren
  aside?: ComponentChildren
}): JSX.Element {
  return (
    <section class="panel" aria-labelledby={id} tabIndex={-1}>
      <header class="panel-head">
        <h2 id={id}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  )
}

/** Characters that are invisible or reorder the text around them. */
const HIDDEN = /(?!\n)[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu

const escaped = (text: string): string =>
  text.replace(/[\s\S]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** A value of a server or a client as JSON, in which hidden characters are escaped. */
export function Json({ value }: { value: unknown }): JSX.Element {
  const text = JSON.stringify(value, undefined, 2) ?? 'nothing'
  return <pre tabIndex={0}>{text.replace(HIDDEN, escaped)}</pre>
}

type Values = Record<string, unknown>

const YES_NO = [
  [true, 'Yes'],
  [false, 'No'],
] as const

/** The fields of a schema, as controls. */
export function Fields({
  fields,
  values,
  problems,
  id,
  asksYesNo = false,
  change,
}: {
  fields: readonly Field[]
  values: Values
  problems: Readonly<Record<string, string>>
  id: string
  /** A box that nobody ticked is not an answer: ask for a yes or a no. */
  asksYesNo?: boolean
  change: (name: string, value: unknown) => void
}): JSX.Element {
  return (
    <>
      {fields.map((field) => {
        const key = `${id}-${field.name}`
        const problem = problems[field.name]
        return (
          <div class="field" key={key}>
            {field.type === 'boolean' && asksYesNo ? (
              <fieldset class="yes-no">
                <legend>
                  {field.title}
                  {field.required ? '' : ' (optional)'}
                </legend>
                {YES_NO.map(([value, label]) => (
                  <label key={label} class="check">
                    <input
                      type="radio"
                      name={key}
                      checked={values[field.name] === value}
                      onChange={() => change(field.name, value)}
                    />{' '}
                    {label}
                  </label>
                ))}
              </fieldset>
            ) : field.type === 'boolean' ? (
              <label>
                <input
                  type="checkbox"
                  id={key}
                  checked={values[field.name] === true}
                  onChange={(event) => change(field.name, event.currentTarget.checked)}
                />{' '}
                {field.title}
              </label>
            ) : (
              <>
                <label for={key}>
                  {field.title}
                  {field.required ? '' : ' (optional)'}
                </label>
                <Control
                  field={field}
                  id={key}
                  value={values[field.name]}
                  change={(value) => change(field.name, value)}
                />
              </>
            )}
            {field.description && <small>{field.description}</small>}
            {problem && (
              <small class="problem" role="alert">
                {problem}
              </small>
            )}
          </div>
        )
      })}
    </>
  )
}

function Control({
  field,
  id,
  value,
  change,
}: {
  field: Field
  id: string
  value: unknown
  change: (value: unknown) => void
}): JSX.Element {
  if (field.type === 'choice')
    return (
      <select id={id} value={String(value ?? '')} onChange={(event) => change(event.currentTarget.value)}>
        <option value="">–</option>
        {field.options?.map((option) => (
          <option key={option.value} value={option.value}>
            {option.title}
          </option>
        ))}
      </select>
    )
  if (field.type === 'choices')
    return (
      <select
        id={id}
        multiple
        onChange={(event) =>
          change(Array.from(event.currentTarget.selectedOptions, (option) => option.value))
        }
      >
        {field.options?.map((option) => (
          <option
            key={option.value}
            value={option.value}
            selected={Array.isArray(value) && value.includes(option.value)}
          >
            {option.title}
          </option>
        ))}
      </select>
    )
  return (
    <input
      id={id}
      inputMode={field.type === 'text' ? 'text' : 'decimal'}
      value={String(value ?? '')}
      onInput={(event) => change(event.currentTarget.value)}
    />
  )
}

/** The initial values of a form; a box that nobody ticks means no. */
export function startOf(fields: readonly Field[]): Values {
  const boxes = fields.filter(({ type }) => type === 'boolean').map(({ name }) => [name, false])
  return { ...Object.fromEntries(boxes), ...startValues(fields) }
}

export type Responses = Record<string, unknown>

/** The open questions of a round, and how to answer them. */
export function QuestionCard({
  questions,
  id,
  label = 'Answer',
  send,
}: {
  questions: Questions
  id: string
  label?: string
  send: (responses: Responses) => Promise<unknown>
}): JSX.Element {
  const [values, setValues] = useState<Record<string, Values>>({})
  const [problems, setProblems] = useState<Record<string, Record<string, string>>>({})
  // Said and not disabled: a button that is disabled loses the focus.
  const [busy, setBusy] = useState(false)
  const [later, setLater] = useState(false)
  const entries = Object.entries(questions)
  const valuesOf = (key: string, fields: readonly Field[]): Values => ({
    ...startValues(fields),
    ...values[key],
  })
  const confirmation = confirmationOf(questions)

  async function submit(action: 'accept' | 'decline' | 'cancel', yes?: boolean): Promise<void> {
    if (busy) return
    if (confirmation && yes !== undefined)
      return sendAll({ [confirmation.key]: { action, content: { [confirmation.field.name]: yes } } })
    const responses: Responses = {}
    const found: Record<string, Record<string, string>> = {}
    for (const [key, question] of entries) {
      const { method, params = {} } = question
      if (method === 'elicitation/create' && (action !== 'accept' || params.mode === 'url'))
        responses[key] = { action }
      else if (method === 'elicitation/create') {
        const { fields } = readForm(params.requestedSchema)
        const checked = checkForm(fields, valuesOf(key, fields))
        if (checked.ok) responses[key] = { action, content: checked.content }
        else found[key] = Object.fromEntries(checked.problems.map(({ name, message }) => [name, message]))
      } else {
        const text = String(values[key]?.json ?? sampleFor(method))
        try {
          responses[key] = JSON.parse(text)
        } catch {
          found[key] = { json: 'This is not JSON' }
        }
      }
    }
    setProblems(found)
    if (Object.keys(found).length === 0) await sendAll(responses)
  }

  async function sendAll(responses: Responses): Promise<void> {
    setBusy(true)
    try {
      await send(responses)
    } finally {
      setBusy(false)
    }
  }

  if (later)
    return (
      <p>
        {entries.length === 1 ? 'A question waits.' : `${entries.length} questions wait.`} The server holds
        nothing for it.{' '}
        <button type="button" onClick={() => setLater(false)}>
          Show
        </button>
      </p>
    )
  return (
    <form
      class="card"
      onSubmit={(event) => {
        event.preventDefault()
        if (confirmation === undefined) void submit('accept')
      }}
    >
      {entries.map(([key, { method, params = {} }]) => (
        <fieldset key={key}>
          <legend>{key}</legend>
          {typeof params.message === 'string' && (
            <p class="message">{cleanText(params.message, 4_000, 'many')}</p>
          )}
          {method !== 'elicitation/create' ? (
            <div class="field">
              <label for={`${id}-${key}-json`}>{method}: the result as JSON</label>
              <textarea
                id={`${id}-${key}-json`}
                rows={5}
                value={String(values[key]?.json ?? sampleFor(method))}
                onInput={(event) => setValues({ ...values, [key]: { json: event.currentTarget.value } })}
              />
              {problems[key]?.json && <small class="problem">{problems[key]?.json}</small>}
            </div>
          ) : params.mode === 'url' ? (
            <p>
              The server wants to open <code>{cleanText(String(params.url), 2_000)}</code>. The console never
              opens it by itself.
            </p>
          ) : confirmation ? null : (
            <Fields
              id={`${id}-${key}`}
              asksYesNo
              fields={readForm(params.requestedSchema).fields}
              values={valuesOf(key, readForm(params.requestedSchema).fields)}
              problems={problems[key] ?? {}}
              change={(name, value) => setValues({ ...values, [key]: { ...values[key], [name]: value } })}
            />
          )}
        </fieldset>
      ))}
      <div class="buttons">
        {confirmation ? (
          YES_NO.map(([value, name]) => (
            <button
              key={name}
              type="button"
              class={value ? 'primary' : undefined}
              aria-disabled={busy || undefined}
              title={value ? confirmation.field.title : undefined}
              onClick={() => void submit('accept', value)}
            >
              {label === 'Answer' ? name : `${label}: ${name}`}
            </button>
          ))
        ) : (
          <button type="submit" class="primary" aria-disabled={busy || undefined}>
            {label}
          </button>
        )}
        <button type="button" aria-disabled={busy || undefined} onClick={() => void submit('decline')}>
          Decline
        </button>
        <button type="button" aria-disabled={busy || undefined} onClick={() => void submit('cancel')}>
          Cancel
        </button>
        <button type="button" aria-disabled={busy || undefined} onClick={() => setLater(true)}>
          Later
        </button>
      </div>
    </form>
  )
}

/** The one question of a card that asks for nothing but a yes or a no, as `ctx.confirm` does. */
function confirmationOf(questions: Questions): { readonly key: string; readonly field: Field } | undefined {
  const [[key, question] = [], ...others] = Object.entries(questions)
  if (key === undefined || question?.method !== 'elicitation/create' || others.length > 0) return undefined
  const { fields } = readForm(question.params?.requestedSchema)
  const [field] = fields
  return fields.length === 1 && field?.type === 'boolean' && field.required ? { key, field } : undefined
}

function sampleFor(method: string): string {
  return method === 'roots/list'
    ? '{ "roots": [] }'
    : '{ "role": "assistant", "model": "console", "content": { "type": "text", "text": "" } }'
}

/**
 * Puts the focus on the closest part of the page that is still there if its element is gone: a question that was answered, a row
 * whose flow was opened, a button of a call that is over.
 */
export function keepFocus(app: HTMLElement): void {
  let path: Element[] = []
  const isLost = (): boolean => path[0]?.isConnected === false
  app.addEventListener('focusin', ({ target }) => {
    path = []
    for (let at = target as Element | null; at !== null && at !== app; at = at.parentElement) path.push(at)
  })
  // A user who leaves an element that stays has put the focus elsewhere.
  app.addEventListener('focusout', () =>
    queueMicrotask(() => {
      if (!isLost() && document.activeElement !== path[0]) path = []
    }),
  )
  new MutationObserver(() => {
    if (!isLost() || document.activeElement !== document.body) return
    const place = path.find((one) => one.isConnected && one.hasAttribute('tabindex'))
    ;((place as HTMLElement | undefined) ?? document.getElementById('main'))?.focus({ preventScroll: true })
  }).observe(app, { childList: true, subtree: true })
}
