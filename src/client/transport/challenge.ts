/**
 * What a server wants to be told before it serves: the challenges of `WWW-Authenticate` (RFC 9110, section 11.6.1). Other
 * people's servers are read with tolerance: what does not fit the grammar is skipped, and nothing is thrown.
 */

import { RondoError } from '../../errors.ts'
import { cleanText } from '../../form/clean-text.ts'
import type { AnswerHead } from './transport.ts'

export interface Challenge {
  /** As the server spells it, such as `Bearer`. */
  readonly scheme: string
  /** Names are in lower case: `realm`, `error`, `scope`, `resource_metadata` and so on. */
  readonly params: Readonly<Record<string, string>>
}

const PART =
  /\s*(?:,\s*)*(?:([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([\w!#$%&'*+.^`|~-]+))(?=\s*(?:,|$))|([\w!#$%&'*+.^`|~-]+)(?=[\s,]|$)|[^\s,]+)/gy

export function parseChallenges(header: string): readonly Challenge[] {
  const challenges: { scheme: string; params: Record<string, string> }[] = []
  for (const [, name, quoted, plain, scheme] of header.matchAll(PART)) {
    const last = challenges.at(-1)
    if (scheme !== undefined) challenges.push({ scheme, params: Object.create(null) })
    else if (name !== undefined && last !== undefined) {
      last.params[name.toLowerCase()] ??= quoted?.replaceAll(/\\(.)/gs, '$1') ?? plain ?? ''
    }
  }
  return challenges.map(({ scheme, params }) => ({ scheme, params: { ...params } }))
}

/** The status of an answer as an error, with the challenges where there are any. */
export function statusError({ status, challenge }: AnswerHead): RondoError {
  const challenges = parseChallenges(challenge ?? '')
  const data = { status, ...(challenge && { challenge, challenges }) }
  const said = challenges.map(summary).join('; ')
  const text = `The server answered with HTTP status ${status}${said && ` (${said})`}`
  return new RondoError('PEER_HTTP', text, { data })
}

const TOLD = ['error', 'error_description', 'scope', 'realm', 'resource_metadata']

function summary({ scheme, params }: Challenge): string {
  const told = TOLD.filter((name) => params[name] !== undefined).map((name) => `${name} ${params[name]}`)
  return cleanText([scheme, ...told].join(', '), 500)
}
