/**
 * The port for logins, and the transport that uses one: it adds the credential to every request, and has a refused one
 * handled before the request is sent again. A server that answers 401 or 403 has done nothing, so sending again is safe.
 *
 * auth 1: A request is sent at most `MAX_ATTEMPTS` times.
 * auth 2: The time in which a person logs in does not count against the timeout of the request.
 * auth 3: A refusal that quotes the credential is redacted before it becomes an error.
 */

import { RondoError } from '../errors.ts'
import { type Challenge, parseChallenges } from './transport/response-reader.ts'
import type { Outgoing, ResponseHead, Transport } from './transport/transport.ts'

/** The headers that authorise one request, and the token in them. */
export interface Credential {
  readonly token: string
  /** `Authorization`, and the proof for a token that is bound to a key. */
  readonly headers: Readonly<Record<string, string>>
}

/** The request that a credential is for. */
export interface AuthorizedRequest {
  readonly method: string
  /** The URL without its query and fragment. */
  readonly url: string
}

/** A response with status 401 or 403. */
export interface Refusal {
  readonly status: number
  readonly challenges: readonly Challenge[]
  /** The credential that was refused; undefined if none was sent. */
  readonly sent: Credential | undefined
  /** The nonce that the server wants in the next proof (`DPoP-Nonce`). */
  readonly nonce?: string
}

/** Authorises the requests of one connection. */
export interface RequestAuth {
  /** Returns the credential for a request; undefined to send none. */
  credential(request: AuthorizedRequest, signal: AbortSignal): Promise<Credential | undefined>
  /** Called when the server accepted this credential. `nonce` is the one that it wants in the next proof. */
  accepted?(credential: Credential, nonce: string | undefined): void
  /** Obtains another credential. False if this refusal is not about the credential. */
  refused(refusal: Refusal, signal: AbortSignal): Promise<boolean>
}

/** Authorises the requests of every connection it is passed to; `oauth` of `rondo/client/oauth` returns one. */
export interface ClientAuth {
  /** Called when a connection to `server` is opened. */
  open(server: URL): RequestAuth
}

/** One attempt each for a stored token, a refreshed one, that of a new login or with more scope, and a nonce. */
const MAX_ATTEMPTS = 5

export function withAuth(transport: Transport, auth: RequestAuth): Transport {
  return { ...transport, exchange: (outgoing) => exchange(transport, auth, outgoing) }
}

async function exchange(transport: Transport, auth: RequestAuth, outgoing: Outgoing): Promise<unknown> {
  const { signal } = outgoing
  for (let attempt = 1; ; attempt++) {
    const request = { method: outgoing.verb ?? 'POST', url: transport.target }
    const credential = await offTheClock(outgoing, () => auth.credential(request, signal))
    let head: ResponseHead | undefined
    try {
      const response = await transport.exchange({
        ...outgoing,
        headers: withCredential(outgoing.headers, credential),
        onHead(one) {
          head = one
          if (credential !== undefined && !isRefusal(one)) auth.accepted?.(credential, one.nonce ?? undefined)
          outgoing.onHead?.(one)
        },
      })
      return response
    } catch (error) {
      if (head === undefined || !isRefusal(head) || signal.aborted) throw error
      const refusal: Refusal = {
        status: head.status,
        challenges: parseChallenges(head.challenge ?? ''),
        sent: credential,
        ...(head.nonce && { nonce: head.nonce }),
      }
      const again =
        attempt < MAX_ATTEMPTS && (await offTheClock(outgoing, () => auth.refused(refusal, signal)))
      if (!again) throw redact(error, credential)
    }
  }
}

function isRefusal({ status }: ResponseHead): boolean {
  return status === 401 || status === 403
}

async function offTheClock<T>({ pause }: Outgoing, work: () => Promise<T>): Promise<T> {
  const resume = pause?.()
  try {
    return await work()
  } finally {
    resume?.()
  }
}

function withCredential(
  headers: Readonly<Record<string, string>>,
  credential: Credential | undefined,
): Readonly<Record<string, string>> {
  if (credential === undefined) return headers
  const others = Object.entries(headers).filter(([name]) => !OWN_HEADERS.has(name.toLowerCase()))
  return { ...Object.fromEntries(others), ...credential.headers }
}

const OWN_HEADERS = new Set(['authorization', 'dpop'])

/** A server may quote what it was sent. */
function redact(error: unknown, credential: Credential | undefined): unknown {
  const { token } = credential ?? {}
  if (!(error instanceof RondoError) || !token) return error
  const data = JSON.stringify(error.data ?? null)
  if (!data.includes(token) && !error.message.includes(token)) return error
  const message = error.message.slice(error.code.length + 3).replaceAll(token, '…')
  return new RondoError(error.code, message, { data: JSON.parse(data.replaceAll(token, '…')) })
}
