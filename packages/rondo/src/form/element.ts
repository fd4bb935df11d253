/**
 * `<rondo-form>`: draws a question of a server in a web page, and reports the answer once.
 *
 * Everything of the server is untrusted:
 * 1. Its text becomes text nodes and the values of controls, never markup, an attribute name, a style or a link.
 * 2. Ids, and the names of controls, are numbers of ours. The names of fields are used only as the keys of the answer.
 * 3. Text is shown by the rule of `cleanText`. A suggested answer that cannot be shown unchanged is left out, so nothing is
 *    sent that was not seen.
 * 4. The page stays usable: `readForm` bounds fields and texts, and of all options together only so many are drawn. A choice
 *    beyond that is typed.
 *
 * Typed text goes through `checkField`, as in the terminal; picked values are judged by the same rules without being read.
 */

import { cleanText, displayText } from './clean-text.ts'
import { type Field, type FieldOption, type FieldValue, FORMATS, listOptions } from './field.ts'
import { readForm } from './form.ts'
import { type CheckedField, checkField, judgeValue } from './judge.ts'

/** A form question, with the name of the server that asks it. */
export interface FormQuestion {
  /** The server, as the host knows it: its address or the name that the user gave it, not the name that it calls itself. */
  readonly server?: string
  readonly message: string
  readonly requestedSchema: unknown
}

/** The answer to a form, as a handler of the client returns it. */
export type FormAnswer =
  | { readonly action: 'accept'; readonly content: Record<string, FieldValue> }
  | { readonly action: 'decline' | 'cancel' }

/** The `<rondo-form>` element. It fires `answer`, once for each question, with a `FormAnswer` as its `detail`. */
export interface FormElement extends HTMLElement {
  /** The question to show. Setting it draws the form anew; `undefined` empties the element. */
  question: FormQuestion | undefined
}

const MAX_MESSAGE = 4_000
/** Up to this many options are all visible; more are in a list to choose from. */
const MAX_RADIOS = 7
/** So many options of a form are drawn; a browser takes seconds for a hundred thousand. */
const MAX_DRAWN_OPTIONS = 2_000
/** A text that may be longer than this gets several lines. */
const LONG_TEXT = 200

/**
 * Registers the element `<rondo-form>`, or the name that is passed. Does nothing if the name is registered.
 *
 * @example
 * ```ts
 * defineFormElement()
 * ```
 */
export function defineFormElement(name = 'rondo-form'): void {
  if (typeof customElements === 'undefined')
    throw new TypeError('defineFormElement needs a browser: call it in the script of a web page')
  if (customElements.get(name) === undefined) customElements.define(name, createElementClass())
}

/**
 * Returns a form handler for `connect` that shows each question inside an element of the page and removes it afterwards.
 *
 * @example
 * ```ts
 * const elicitation = { form: askInPage(document.body) }
 * const client = await connect(url, { answers: { elicitation } })
 * ```
 */
export function askInPage(
  place: ParentNode,
): (
  question: { readonly message: string; readonly requestedSchema: unknown },
  context: { readonly server: { readonly target: string }; readonly signal: AbortSignal },
) => Promise<FormAnswer> {
  defineFormElement()
  return ({ message, requestedSchema }, { server, signal }) =>
    new Promise((resolve) => {
      const form = document.createElement('rondo-form') as FormElement
      const finish = (answer: FormAnswer): void => {
        form.remove()
        resolve(answer)
      }
      if (signal.aborted) return finish({ action: 'cancel' })
      signal.addEventListener('abort', () => finish({ action: 'cancel' }), { once: true })
      form.addEventListener('answer', (event) => finish((event as CustomEvent<FormAnswer>).detail))
      form.question = { server: server.target, message, requestedSchema }
      place.append(form)
    })
}

/** The class exists only where there is a DOM, so the module can be imported anywhere. */
function createElementClass(): CustomElementConstructor {
  const style = new CSSStyleSheet()
  style.replaceSync(STYLE)
  return class extends HTMLElement implements FormElement {
    readonly #root: ShadowRoot = this.attachShadow({ mode: 'open', delegatesFocus: true })
    #question: FormQuestion | undefined

    constructor() {
      super()
      this.#root.adoptedStyleSheets = [style]
    }

    get question(): FormQuestion | undefined {
      return this.#question
    }

    set question(question: FormQuestion | undefined) {
      this.#question = question
      this.#root.replaceChildren()
      if (question === undefined) return
      const answer = (detail: FormAnswer): void => {
        this.dispatchEvent(new CustomEvent('answer', { detail }))
      }
      this.#root.append(drawQuestion(question, answer))
    }
  }
}

function drawQuestion(question: FormQuestion, answer: (answer: FormAnswer) => void): HTMLFormElement {
  const { fields, notes } = readForm(question.requestedSchema)
  let left = MAX_DRAWN_OPTIONS
  const drawn = fields.map((field, index) => {
    left -= field.options?.length ?? 0
    return drawField(field, index, left < 0)
  })
  const buttons = [
    draw('button', { type: 'submit', part: 'button submit' }, fields.length === 0 ? 'Yes' : 'Send'),
    draw('button', { type: 'button', part: 'button decline' }, fields.length === 0 ? 'No' : 'Decline'),
    draw('button', { type: 'button', part: 'button cancel' }, 'Not now'),
  ]
  const form = draw(
    'form',
    { part: 'form', novalidate: '', autocomplete: 'off' },
    question.server !== undefined &&
      draw('p', { part: 'server' }, draw('b', {}, cleanText(question.server, LONG_TEXT)), ' asks:'),
    draw('p', { part: 'message', dir: 'auto' }, cleanText(question.message, MAX_MESSAGE, 'many')),
    // A form without fields asks for a plain yes or no, and the note would only say so.
    fields.length > 0 && notes.length > 0 && drawNotes(notes),
    ...drawn.map(({ element }) => element),
    draw('div', { part: 'buttons' }, ...buttons),
  )
  let isAnswered = false
  const finish = (given: FormAnswer): void => {
    if (isAnswered) return
    isAnswered = true
    for (const control of form.elements) (control as HTMLButtonElement).disabled = true
    answer(given)
  }
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    const content: [string, FieldValue][] = []
    const wrong = drawn.filter(({ field, check }) => {
      const checked = check()
      if (checked.ok && checked.value !== undefined) content.push([field.name, checked.value])
      return !checked.ok
    })
    if (wrong[0] === undefined) finish({ action: 'accept', content: Object.fromEntries(content) })
    else wrong[0].focus()
  })
  buttons[1]?.addEventListener('click', () => finish({ action: 'decline' }))
  buttons[2]?.addEventListener('click', () => finish({ action: 'cancel' }))
  return form
}

function drawNotes(notes: readonly string[]): HTMLElement {
  return draw('ul', { part: 'notes' }, ...notes.map((note) => draw('li', {}, note)))
}

/** A field on the page. `check` reads it, shows the problem if there is one, and returns what it found. */
interface DrawnField {
  readonly field: Field
  readonly element: HTMLElement
  check(): CheckedField
  focus(): void
}

/** The controls of a field, and how to read them. */
interface Controls {
  /** The control that the label is for; absent if the controls are a group with a legend. */
  readonly single?: HTMLElement
  readonly elements: readonly HTMLElement[]
  /** What can be said about the suggested answer. */
  readonly note?: string
  read(): CheckedField
  focus(): void
}

function drawField(field: Field, index: number, isTyped: boolean): DrawnField {
  const id = `f${index}`
  const controls = isTyped ? drawText(field, id) : drawControls(field, id)
  const hint = [field.description, hintOf(field, isTyped), field.unsupported, controls.note]
    .filter(Boolean)
    .join('\n')
  const error = draw('p', { part: 'error', id: `${id}-error`, hidden: '' })
  const title = `${field.title}${field.required ? '' : ' (optional)'}`
  const about = hint !== '' && draw('p', { part: 'hint', id: `${id}-hint`, dir: 'auto' }, hint)
  const isRadio = controls.single === undefined && field.type !== 'choices'
  const element = controls.single
    ? draw(
        'div',
        { part: 'field' },
        draw('label', { part: 'label', for: id, dir: 'auto' }, title),
        about,
        ...controls.elements,
        error,
      )
    : draw(
        'fieldset',
        { part: 'field', ...(isRadio && { role: 'radiogroup' }) },
        draw('legend', { part: 'label', dir: 'auto' }, title),
        about,
        draw('div', { part: 'options' }, ...controls.elements),
        error,
      )
  const target = controls.single ?? element
  const mayBeMarked = controls.single !== undefined || isRadio
  if (field.required && mayBeMarked) target.setAttribute('aria-required', 'true')
  const mark = (message: string | undefined): void => {
    error.textContent = message === undefined ? '' : displayText(message)
    error.hidden = message === undefined
    if (mayBeMarked) target.setAttribute('aria-invalid', String(message !== undefined))
    const described = [hint !== '' && `${id}-hint`, message !== undefined && `${id}-error`].filter(Boolean)
    if (described.length > 0) target.setAttribute('aria-describedby', described.join(' '))
    else target.removeAttribute('aria-describedby')
  }
  const check = (): CheckedField => {
    const checked = controls.read()
    mark(checked.ok ? undefined : checked.message)
    return checked
  }
  mark(undefined)
  // While somebody corrects the field, not when they leave it: a line that appears or goes then would move the button that
  // is about to be clicked.
  element.addEventListener('input', () => error.hidden || check())
  return { field, element, check, focus: () => controls.focus() }
}

function drawControls(field: Field, id: string): Controls {
  switch (field.type) {
    case 'boolean':
      return drawRadios(field, id, YES_NO)
    case 'choice':
      return (field.options?.length ?? 0) > MAX_RADIOS
        ? drawSelect(field, id)
        : drawRadios(field, id, field.options ?? [])
    case 'choices':
      return drawBoxes(field, id)
    default:
      return drawText(field, id)
  }
}

const YES_NO = [
  { value: true, title: 'Yes' },
  { value: false, title: 'No' },
] as const

/** A picked value, checked as it is; an optional field that was left open has none. */
function judged(field: Field, value: FieldValue | undefined): CheckedField {
  if (value === undefined) return checkField(field, undefined)
  const message = judgeValue(field, value)
  return message === undefined ? { ok: true, value } : { ok: false, message }
}

function drawRadios(
  field: Field,
  id: string,
  options: readonly { readonly value: FieldValue; readonly title: string }[],
): Controls {
  const all = field.required ? options : [...options, { value: undefined, title: 'No answer' }]
  const boxes = all.map(({ value, title }, at) => drawBox('radio', id, at, title, value === field.default))
  const inputs = boxes.map(({ input }) => input)
  return {
    elements: boxes.map(({ element }) => element),
    read: () => judged(field, all[inputs.findIndex(({ checked }) => checked)]?.value),
    focus: () => (inputs.find(({ checked }) => checked) ?? inputs[0])?.focus(),
  }
}

function drawBoxes(field: Field, id: string): Controls {
  const { options = [] } = field
  const initial = Array.isArray(field.default) ? new Set<unknown>(field.default) : new Set()
  const boxes = options.map(({ value, title }, at) => drawBox('checkbox', id, at, title, initial.has(value)))
  const inputs = boxes.map(({ input }) => input)
  const picked = (): string[] => [
    ...new Set(options.filter((_, at) => inputs[at]?.checked).map(({ value }) => value)),
  ]
  return {
    elements: boxes.map(({ element }) => element),
    read() {
      const values = picked()
      return judged(field, values.length === 0 && !field.required ? undefined : values)
    },
    focus: () => inputs[0]?.focus(),
  }
}

function drawBox(
  type: 'radio' | 'checkbox',
  name: string,
  at: number,
  title: string,
  isChecked: boolean,
): { element: HTMLElement; input: HTMLInputElement } {
  const input = draw('input', { type, name, id: `${name}-${at}`, part: 'box' })
  input.checked = isChecked
  return { element: draw('label', { part: 'option', dir: 'auto' }, input, title), input }
}

function drawSelect(field: Field, id: string): Controls {
  const options: readonly FieldOption[] = field.options ?? []
  const select = draw(
    'select',
    { id, part: 'control' },
    draw('option', {}, field.required ? 'Choose one' : 'No answer'),
    ...options.map(({ title }) => draw('option', { dir: 'auto' }, title)),
  )
  select.selectedIndex = options.findIndex(({ value }) => value === field.default) + 1
  return {
    single: select,
    elements: [select],
    read: () => judged(field, options[select.selectedIndex - 1]?.value),
    focus: () => select.focus(),
  }
}

const KEYBOARDS = { email: 'email', uri: 'url', date: 'text', 'date-time': 'text' } as const

function drawText(field: Field, id: string): Controls {
  const initial = Array.isArray(field.default) ? field.default.join(', ') : String(field.default ?? '')
  const isShown = displayText(initial) === initial && !initial.includes('\t')
  const start = isShown ? initial : ''
  const control = drawInput(field, id, start)
  control.value = start
  return {
    single: control,
    elements: [control],
    ...(!isShown && {
      note: 'The suggested answer contains characters that cannot be shown, and was left out.',
    }),
    read() {
      // A date picker that is filled in halfway has no value, which must not pass for an empty field.
      if (control.validity.badInput) return checkField(field, 'incomplete')
      return checkField(field, control.value)
    },
    focus: () => control.focus(),
  }
}

function drawInput(field: Field, id: string, start: string): HTMLInputElement | HTMLTextAreaElement {
  const { type, format, limits } = field
  const isLong = (limits.max ?? 0) > LONG_TEXT || start.includes('\n')
  if (type === 'text' && format === undefined && isLong)
    return draw('textarea', { id, part: 'control', rows: '4', dir: 'auto' })
  if (format === 'date') {
    const picker = draw('input', { id, part: 'control', type: 'date' })
    picker.value = start
    // A picker drops dates that it does not know, such as those of the year 0.
    if (picker.value === start) return picker
  }
  // Keyboards for numbers have no minus sign on some phones.
  const isPositive = limits.min !== undefined && limits.min >= 0
  const isNumber = type === 'integer' || type === 'number'
  const number = type === 'integer' ? 'numeric' : 'decimal'
  const inputmode = format !== undefined ? KEYBOARDS[format] : isNumber && isPositive ? number : 'text'
  return draw('input', { id, part: 'control', type: 'text', inputmode, dir: 'auto' })
}

/** The format and the limits in words. */
function hintOf(field: Field, isTyped: boolean): string {
  const { type, format, limits } = field
  const { min, max } = limits
  if (isTyped && type === 'choice') return `Enter one of: ${listOptions(field)}.`
  if (isTyped && type === 'choices')
    return `Enter any of these, with commas between them: ${listOptions(field)}.`
  // A picker shows the format in the spelling of its user.
  if (format === 'date') return ''
  if (format !== undefined) return `Enter ${FORMATS[format].wanted}.`
  const unit = type === 'text' ? ' characters' : ''
  const verb = type === 'choices' ? 'Choose' : 'Enter'
  const kind = type === 'integer' ? 'a whole number' : type === 'number' ? 'a number' : ''
  if (min !== undefined && max !== undefined)
    return kind === '' ? `${verb} ${min} to ${max}${unit}.` : `Enter ${kind} from ${min} to ${max}.`
  if (min !== undefined) return `${verb} ${kind}${kind && ' of '}at least ${min}${unit}.`
  if (max !== undefined) return `${verb} ${kind}${kind && ' of '}at most ${max}${unit}.`
  return kind === '' ? '' : `Enter ${kind}.`
}

type Child = string | false | HTMLElement

/** An element with attributes of ours. Children that are strings become text. */
function draw<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>>,
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value)
  element.append(...children.filter((child) => child !== false))
  return element
}

const STYLE = `
:host { display: block; font: inherit; color: inherit; }
:host([hidden]), [hidden] { display: none; }
form { display: grid; gap: var(--rondo-gap, 1rem); overflow-wrap: anywhere; }
p, ul { margin: 0; }
fieldset { border: 0; margin: 0; padding: 0; min-inline-size: 0; }
[part=message] { white-space: pre-wrap; border-inline-start: .25rem solid; padding: .25rem .75rem; unicode-bidi: isolate; }
[part=label], legend { display: block; font-weight: 600; padding: 0; }
[part=hint], [part=notes] { white-space: pre-wrap; font-size: .875em; opacity: .85; }
[part=error] { color: var(--rondo-error, light-dark(#b00020, #ff9c94)); font-weight: 600; }
[part=options] { max-block-size: 20rem; overflow: auto; }
[part=option] { display: block; padding: .125rem 0; }
[part=option] input { margin-inline-end: .5rem; }
[part=control] { font: inherit; inline-size: 100%; box-sizing: border-box; padding: .375rem .5rem; }
[part=control], [part=box] { accent-color: var(--rondo-accent, auto); }
[aria-invalid=true][part=control] { outline: .125rem solid var(--rondo-error, light-dark(#b00020, #ff9c94)); }
[part=buttons] { display: flex; flex-wrap: wrap; gap: .5rem; }
button { font: inherit; padding: .375rem 1rem; }
:focus-visible { outline: .1875rem solid var(--rondo-accent, light-dark(#1a56c4, #8ab4ff)); outline-offset: .125rem; }
`
