import { hash } from 'node:crypto'

/**
 * SHA-256 of a text, whole, as 43 characters of base64url.
 *
 * Made for the output of `canonicalJson`, which has no lone surrogates: in UTF-8 they would all look alike.
 */
export function digest(text: string): string {
  return hash('sha256', text, 'base64url')
}
