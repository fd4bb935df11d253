import { findSecret } from '../../form/secret-like.ts'
import { isRecord } from '../../lib/is-record.ts'
import type { RoundPolicy } from '../round-policy.ts'

/** Refuses forms that ask for something that looks like a password, a key or a token: those belong behind a URL. */
export function noSecretsInForms(): RoundPolicy {
  return ({ questions }) => {
    for (const [key, question] of Object.entries(questions)) {
      if (question.method !== 'elicitation/create' || question.params.mode !== 'form') continue
      const field = secretField(question.params.requestedSchema.properties)
      if (field !== undefined) {
        return { kind: 'refuse', reason: `"${key}" asks for "${field}" in a form, which looks like a secret` }
      }
    }
    return undefined
  }
}

function secretField(properties: unknown): string | undefined {
  if (!isRecord(properties)) return undefined
  return Object.keys(properties).find((name) => findSecret(name, properties[name]) !== undefined)
}
