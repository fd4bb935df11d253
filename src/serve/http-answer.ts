import type { RondoError } from '../errors.ts'
import type { RequestId } from '../protocol/call.ts'
import { encodeError } from '../protocol/rev-2026-07-28/encode.ts'

export type HttpHeaders = Readonly<Record<string, string>>

/** A response that is complete when it begins. */
export interface HttpAnswer {
  readonly status: number
  readonly headers: HttpHeaders
  readonly body: string
}

export const JSON_HEADERS: HttpHeaders = { 'Content-Type': 'application/json' }

/** An error as a whole response. */
export function refusal(error: RondoError, id: RequestId | null = null, headers?: HttpHeaders): HttpAnswer {
  return {
    status: error.http,
    headers: headers === undefined ? JSON_HEADERS : { ...JSON_HEADERS, ...headers },
    body: encodeError(id, error),
  }
}
