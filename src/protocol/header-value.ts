/**
 * How a string of the body travels in an HTTP header (`Mcp-Name`, `Mcp-Param-…`).
 *
 * Visible ASCII goes as it is. Anything a header would change or forbid (other characters, blanks at the ends) and
 * anything that looks like the encoded form goes as `=?base64?` + standard base64 of the UTF-8 bytes + `?=`.
 * H1 decode(encode(text)) = text for every well-formed string. H2 One encoded form per text: loose base64 (missing
 * padding, foreign characters, stray bits) and bytes that are not UTF-8 give undefined.
 */

const PREFIX = '=?base64?'
const SUFFIX = '?='

const PLAIN = /^(?:[!-~](?:[ -~]*[!-~])?)?$/
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

export function encodeHeaderValue(text: string): string {
  return PLAIN.test(text) && !isEncoded(text) ? text : PREFIX + toBase64(text) + SUFFIX
}

/** The text a header stands for; undefined where the encoded form is broken. Blanks around a plain value do not count. */
export function decodeHeaderValue(value: string): string | undefined {
  const trimmed = value.replace(/^[ \t]+|[ \t]+$/g, '')
  if (!isEncoded(trimmed)) return trimmed
  return fromBase64(trimmed.slice(PREFIX.length, -SUFFIX.length))
}

function isEncoded(text: string): boolean {
  return text.length >= PREFIX.length + SUFFIX.length && text.startsWith(PREFIX) && text.endsWith(SUFFIX)
}

function toBase64(text: string): string {
  let binary = ''
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte)
  return btoa(binary)
}

function fromBase64(encoded: string): string | undefined {
  if (!BASE64.test(encoded)) return undefined
  const binary = atob(encoded)
  if (btoa(binary) !== encoded) return undefined
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0))
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}
