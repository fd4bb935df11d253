/**
 * Recognises fields that ask for a secret, by their name or title (T5): the protocol forbids asking for one in a form, since
 * the answer passes through the client and its model. Words are matched whole, so `tokenize`, `pinned` and
 * `keyboard` are fine, and so is what only describes a secret (`tokenCount`, `passwordPolicy`). Servers refuse to ask for such a
 * field, and our client refuses to show it.
 */

import { readForm } from './form.ts'

/** Words and pairs of words that name a secret. `tokens` alone counts pieces of text. */
const SECRETS = new Set(
  `password passwords passwd pwd passphrase passcode secret secrets token credential credentials pin cvv cvc csc
  ssn otp totp apikey apitoken accesskey accesstoken authtoken bearertoken clientsecret privatekey refreshtoken
  secretkey sessiontoken signingkey userpassword jwt
  api-key api-keys api-tokens access-key access-keys access-tokens private-key secret-key signing-key encryption-key
  master-key ssh-key license-key bearer-tokens refresh-tokens recovery-code recovery-codes recovery-phrase backup-code
  backup-codes seed-phrase security-code verification-code auth-code authentication-code one-time-code card-number
  credit-card social-security security-answer`.split(/\s+/),
)

/** Words after which the field describes a secret and does not hold it. */
const DESCRIBING = new Set(
  `age algorithm budget count counter expiration expires expiry format hint kind length lifetime limit name policy size
  status strength ttl type usage`.split(/\s+/),
)

const MAX_WORDS = 50

/**
 * The words by which a field of a form asks for a secret, as they would be said ("api key"); undefined if it does not. Only
 * fields with free input can take a secret: a boolean or a choice cannot.
 */
export function findSecret(name: string, schema: unknown): string | undefined {
  if (isRecord(schema) && schema.format === 'password') return 'password'
  const [field] = readForm({ properties: { [name]: schema } }).fields
  const { type, title } = field ?? { type: 'text', title: '' }
  if (type !== 'text' && type !== 'number' && type !== 'integer') return undefined
  return findSecretWords(name) ?? findSecretWords(title)
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

export function findSecretWords(text: string): string | undefined {
  const words = splitWords(text.slice(0, 500)).slice(0, MAX_WORDS)
  for (let i = 0; i < words.length; i++) {
    for (const length of [3, 2, 1]) {
      const phrase = words.slice(i, i + length)
      const next = words[i + length]
      if (phrase.length < length || !SECRETS.has(phrase.join('-'))) continue
      if (next === undefined || !DESCRIBING.has(next)) return phrase.join(' ')
    }
  }
  return undefined
}

/** `userAPIKey2`, `user_api-key 2` as user, api, key, 2. */
function splitWords(text: string): string[] {
  return text
    .replace(/([\p{Ll}\p{N}])(\p{Lu})/gu, '$1 $2')
    .replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1 $2')
    .replace(/(\p{L})(\p{N})/gu, '$1 $2')
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '')
}
