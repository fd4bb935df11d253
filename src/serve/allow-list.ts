/**
 * Which `Host` and which `Origin` may reach this server (T12: a page of another site must not talk to a local server
 * through a name that it points at 127.0.0.1).
 *
 * Loopback names are always on the list, with any port. An entry is `host` (any port), `host:port` (that port alone)
 * or `*` (anything). Names are compared as they are written, in lower case; nothing is resolved. An origin is judged
 * by its host and port; an entry of `allowedOrigins` may name the scheme too.
 */

export interface AllowListOptions {
  /** Names under which the server is reached, besides loopback: `host` or `host:port`. `*` switches the check off. */
  allowedHosts?: readonly string[]
  /** Origins of pages that may call, besides those of the allowed hosts. `*` switches the check off. */
  allowedOrigins?: readonly string[]
}

export interface AllowList {
  host(value: string | undefined): boolean
  /** A request without an origin does not come from a page and is fine. */
  origin(value: string | undefined): boolean
  /** The origin is one that `allowedOrigins` lets in, not only one of the server's own hosts. */
  namedOrigin(value: string): boolean
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]']
/** Listening on these says nothing about the names under which a server is reached. */
const EVERY_ADDRESS = new Set(['0.0.0.0', '::'])
const AUTHORITY = /^(\[[0-9a-f:.]+\]|[^[\]:/?#@\s,]+)(?::(\d{1,5}))?$/
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/([^/?#]+)$/

export function createAllowList(options: AllowListOptions, listenHost?: string): AllowList {
  const hosts = entries([...LOOPBACK, ...(options.allowedHosts ?? [])])
  if (listenHost !== undefined && !EVERY_ADDRESS.has(listenHost)) hosts.add(bracketed(listenHost))
  const named = entries(options.allowedOrigins ?? [])
  const origins = new Set([...named, ...hosts])
  // Nearly every request of a client carries the same two values.
  let lastHost: string | undefined
  let lastOrigin: string | undefined
  return {
    host(value) {
      if (value !== undefined && value === lastHost) return true
      if (!allows(hosts, value?.toLowerCase() ?? '')) return false
      lastHost = value
      return true
    },
    origin(value) {
      if (value === undefined || value === lastOrigin) return true
      if (!allowsOrigin(origins, value)) return false
      lastOrigin = value
      return true
    },
    namedOrigin: (value) => allowsOrigin(named, value),
  }
}

function entries(names: readonly string[]): Set<string> {
  return new Set(names.map((name) => name.toLowerCase()))
}

function allowsOrigin(list: ReadonlySet<string>, value: string): boolean {
  const lower = value.toLowerCase()
  const authority = ORIGIN.exec(lower)?.[1]
  if ((authority !== undefined || lower === 'null') && list.has(lower)) return true
  return allows(list, authority ?? '')
}

function allows(list: ReadonlySet<string>, authority: string): boolean {
  if (list.has('*')) return true
  const match = AUTHORITY.exec(authority)
  return match !== null && (list.has(authority) || list.has(match[1] ?? ''))
}

function bracketed(host: string): string {
  return (host.includes(':') && !host.startsWith('[') ? `[${host}]` : host).toLowerCase()
}
