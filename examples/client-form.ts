import type { FormHandler } from 'rondo/client'
import { checkForm, type Field, type FieldProblem, readForm, startValues } from 'rondo/forms'

/** What a user interface draws: who asks, the message, the fields, their values, and the problems found. */
export interface Drawn {
  readonly server: string
  readonly message: string
  readonly fields: readonly Field[]
  readonly values: Readonly<Record<string, unknown>>
  readonly problems: readonly FieldProblem[]
}

export type Typed = Readonly<Record<string, unknown>> | 'decline' | 'cancel'

// #region form
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
// #endregion
