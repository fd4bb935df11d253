import { isRecord } from '../../lib/is-record.ts'
import type { RoundPolicy } from '../round-policy.ts'

/** Words that name a credential, as a whole part of a field's name: `api_key`, `apiKey`, `client-secret`. */
const SECRET_WORDS =
  /(?:^|[\s_.-])(?:password|passwd|passphrase|passcode|pwd|secret|credentials?|token|api[\s_.-]?key|access[\s_.-]?key|private[\s_.-]?key|pin|otp|cvv|cvc|ssn)(?:$|[\s_.-])/i

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
  return Object.keys(properties).find((name) => {
    const schema = properties[name]
    const title = isRecord(schema) && typeof schema.title === 'string' ? schema.title : ''
    const format = isRecord(schema) ? schema.format : undefined
    return looksSecret(name) || looksSecret(title) || format === 'password'
  })
}

function looksSecret(name: string): boolean {
  return SECRET_WORDS.test(name.replace(/([a-z0-9])([A-Z])/g, '$1_$2'))
}
