/**
 * Looks at a URL that a server wants opened (T22). Only https, or http on this machine, and no user name in it: a name
 * before the host is the oldest way to make one host look like another. Nothing is ever fetched or opened here.
 */

export interface Link {
  /** The URL as it will really be opened; show this one. */
  readonly url: string
  readonly host: string
  /** What a person should be told before opening it. */
  readonly warnings: readonly ('not-encrypted' | 'look-alike-letters' | 'bare-address')[]
}

const MAX_LENGTH = 8_192
const BARE_ADDRESS = /^(?:\d{1,3}(?:\.\d{1,3}){3}|\[.*\])$/

/** The link, or undefined where it is not safe to open. */
export function inspectLink(text: string): Link | undefined {
  if (text.length > MAX_LENGTH || !URL.canParse(text)) return undefined
  const url = new URL(text)
  if (url.username !== '' || url.password !== '') return undefined
  const plain = url.protocol === 'http:'
  if (url.protocol !== 'https:' && !(plain && isLoopback(url.hostname))) return undefined
  const labels = url.hostname.split('.')
  return {
    url: url.href,
    host: url.host,
    warnings: [
      ...(plain ? (['not-encrypted'] as const) : []),
      ...(labels.some((label) => label.startsWith('xn--')) ? (['look-alike-letters'] as const) : []),
      ...(BARE_ADDRESS.test(url.hostname) ? (['bare-address'] as const) : []),
    ],
  }
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d{1,3}){3}$/.test(hostname)
}
