/** The credential of a request: a bearer token, or a token that is bound to a key, with a new proof for each request (DPoP). */

import { createHash, createPrivateKey, createPublicKey, type JsonWebKey, randomUUID, sign } from 'node:crypto'

export interface Credential {
  readonly token: string
  /** The private key to which the token is bound, and the URL that its proofs name. */
  readonly proof?: { readonly key: JsonWebKey; readonly url: string }
}

/** Returns a function that adds the credential to a whole request. */
export function createSigner(credential: Credential | undefined): (request: string) => string {
  if (credential === undefined) return (request) => request
  const { token, proof } = credential
  if (proof === undefined) return (request) => withHeaders(request, [`Authorization: Bearer ${token}`])
  const key = createPrivateKey({ key: proof.key, format: 'jwk' })
  const { kty, crv, x, y } = createPublicKey(key).export({ format: 'jwk' })
  const header = part({ typ: 'dpop+jwt', alg: 'ES256', jwk: { kty, crv, x, y } })
  const claims = { htm: 'POST', htu: proof.url, ath: createHash('sha256').update(token).digest('base64url') }
  return (request) => {
    const iat = Math.floor(Date.now() / 1000)
    const input = `${header}.${part({ ...claims, iat, jti: randomUUID() })}`
    const signature = sign('sha256', Buffer.from(input), { key, dsaEncoding: 'ieee-p1363' })
    return withHeaders(request, [
      `Authorization: DPoP ${token}`,
      `DPoP: ${input}.${signature.toString('base64url')}`,
    ])
  }
}

function part(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

function withHeaders(request: string, headers: readonly string[]): string {
  return request.replace('\r\n\r\n', () => `\r\n${headers.join('\r\n')}\r\n\r\n`)
}
