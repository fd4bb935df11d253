import { createInterface } from 'node:readline/promises'
import { connect, type FormHandler } from 'rondo/client'
import { checkForm, type Field, type FieldProblem, readForm, startValues } from 'rondo/forms'

/** The data that a user interface draws: who asks, the message, the fields, their values, and the problems found. */
export interface Drawn {
  readonly server: string
  readonly message: string
  readonly fields: readonly Field[]
  readonly values: Readonly<Record<string, unknown>>
  readonly problems: readonly FieldProblem[]
}

export type Typed = Readonly<Record<string, unknown>> | 'decline' | 'cancel'

/** A handler over your own user interface: `draw` shows a form and resolves with what was typed, or with a refusal. */
export function askWith(draw: (drawn: Drawn, signal: AbortSignal) => Promise<Typed>): FormHandler {
  return async ({ message, requestedSchema }, { server, signal }) => {
    const { fields } = readForm(requestedSchema)
    let shown: Drawn = { server: server.target, message, fields, values: startValues(fields), problems: [] }
    for (;;) {
      const values = await draw(shown, signal)
      if (values === 'decline' || values === 'cancel') return { action: values }
      const checked = checkForm(fields, values)
      if (checked.ok) return { action: 'accept', content: checked.content }
      shown = { ...shown, values, problems: checked.problems }
    }
  }
}

/** A user interface in a terminal. An empty line keeps the value in brackets; the end of the input cancels. */
async function drawInTerminal(drawn: Drawn, signal: AbortSignal): Promise<Typed> {
  const { server, message, fields, values, problems } = drawn
  const terminal = createInterface({ input: process.stdin, output: process.stdout })
  const gone = new Promise<undefined>((resolve) => terminal.once('close', () => resolve(undefined)))
  const ask = (text: string) => Promise.race([gone, terminal.question(text, { signal })])
  console.log([`${server}: ${message}`, ...problems.map((one) => `! ${one.message}`)].join('\n'))
  const typed: Record<string, unknown> = { ...values }
  try {
    for (const { name, title, options } of fields) {
      const choices = options ? ` (${options.map((option) => option.value).join(', ')})` : ''
      const kept = typed[name] === undefined ? '' : ` [${typed[name]}]`
      const line = await ask(`${title}${choices}${kept}: `)
      if (line === undefined) return 'cancel'
      if (line !== '') typed[name] = line
    }
    // Asked even if the form has no fields: then it is the whole question.
    const send = await ask('Send? (yes, no, later): ')
    if (send === 'no') return 'decline'
    return send === 'yes' ? typed : 'cancel'
  } finally {
    terminal.close()
  }
}

if (process.argv[1] === import.meta.filename) {
  const answers = { elicitation: { form: askWith(drawInTerminal) } }
  const client = await connect(process.argv[2] ?? 'http://127.0.0.1:3000/mcp', { answers })
  const args = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }
  console.log((await client.callTool('update_work_item', args)).content)
  await client.close()
}
