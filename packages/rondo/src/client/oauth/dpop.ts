/**
 * Proofs that this client holds the key to which its tokens are bound (DPoP, RFC 9449). A stolen token is of no use without
 * the key, and the key stays in this process: it is created unextractable, unless the caller passes one of its own.
 *
 * dpop 1: Every request has a proof of its own, for its method, its URL and its token.
 * dpop 2: Nonces are kept by origin. A server that wants another one names it in its refusal, and the request is sent again.
 */

import {
  allowInsecureRequests,
  DPoP as createHandle,
  customFetch,
  type DPoPHandle,
  generateKeyPair,
  protectedResourceRequest,
} from 'oauth4webapi'
import type { AuthorizedRequest, Credential } from '../auth.ts'

export interface KeyBinding {
  /** Signs the requests to the token endpoint. */
  readonly handle: DPoPHandle
  /** The SHA-256 thumbprint of the key (RFC 7638), which is stored with the tokens. */
  readonly thumbprint: string
  /** Returns the headers that present a bound token. */
  present(token: string, request: AuthorizedRequest): Promise<Credential>
  /** Keeps the nonce for the next proof. */
  remember(nonce: string | undefined, url: string): Promise<void>
}

/** The only algorithm of the keys that are created here, and the one that every implementation supports. */
const ALGORITHM = 'ES256'

/** `given` is the caller's key pair; without it one is created that cannot be exported. */
export async function createBinding(given?: CryptoKeyPair): Promise<KeyBinding> {
  const handle = createHandle({}, given ?? (await generateKeyPair(ALGORITHM)))
  return {
    handle,
    thumbprint: await handle.calculateThumbprint(),
    async present(token, request) {
      const { authorization = '', dpop = '' } = await signed(handle, token, request)
      return { token, headers: { Authorization: authorization, DPoP: dpop } }
    },
    async remember(nonce, url) {
      if (nonce !== undefined) await signed(handle, 'nonce', { method: 'GET', url }, { 'DPoP-Nonce': nonce })
    },
  }
}

/** The library signs as part of a request and reads nonces from its response. Nothing is sent: the transports do that. */
async function signed(
  handle: DPoPHandle,
  token: string,
  { method, url }: AuthorizedRequest,
  response: Readonly<Record<string, string>> = {},
): Promise<Readonly<Record<string, string>>> {
  let headers: Readonly<Record<string, string>> = {}
  await protectedResourceRequest(token, method, new URL(url), undefined, null, {
    DPoP: handle,
    [allowInsecureRequests]: true,
    [customFetch]: async (_url, init) => {
      headers = Object.fromEntries(new Headers(init.headers))
      return new Response(null, { status: 204, headers: response })
    },
  })
  return headers
}
