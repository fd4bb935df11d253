/** The headers of one HTTP request: the protocol's own, and whatever the caller wants sent along. */

export type HeaderSource =
  | Readonly<Record<string, string>>
  | (() => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>)

/** The protocol's own headers win, however the others are spelt. */
export async function requestHeaders(
  own: Readonly<Record<string, string>>,
  source: HeaderSource | undefined,
): Promise<Readonly<Record<string, string>>> {
  if (source === undefined) return own
  const taken = new Set(Object.keys(own).map((name) => name.toLowerCase()))
  const others = typeof source === 'function' ? await source() : source
  const free = Object.entries(others).filter(([name]) => !taken.has(name.toLowerCase()))
  return { ...own, ...Object.fromEntries(free) }
}
