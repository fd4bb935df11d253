/**
 * The location of a host: on this machine, in a private network, or in public. Everything that allows or refuses a host asks here.
 * A host is what `URL.hostname` has, or an address without brackets. What is not a host is neither on loopback nor public, so
 * that nothing is allowed because of it.
 */

/** Names of this machine in programs. An allow list compares names as they are written, so that it has no other spelling. */
export const LOOPBACK_NAMES: readonly string[] = ['localhost', '127.0.0.1', '[::1]']

/** True for this machine: `localhost`, names below it, 127.0.0.0/8 and ::1. */
export function isLoopback(host: string): boolean {
  const name = normalize(host)
  if (name === undefined) return false
  const bytes = bytesOf(name)
  if (bytes !== undefined) return contains(LOOPBACK, contains(MAPPED, bytes) ? bytes.slice(12) : bytes)
  return name === 'localhost' || name.endsWith('.localhost')
}

/**
 * True for an address that the public network leads to, and for a name with a domain. Names are not resolved: such a name may
 * still stand for an address that is not public.
 */
export function isPublic(host: string): boolean {
  const name = normalize(host)
  if (name === undefined) return false
  const bytes = bytesOf(name)
  if (bytes === undefined) return name.includes('.') && !INTERNAL_NAME.test(name)
  const address = embeddedIn(bytes) ?? bytes
  return !contains(NOT_PUBLIC, address) && (address.length === 4 || contains(UNICAST, address))
}

/** Names that stand for something only in the network where they are used: registered ones, those of RFC 6762 appendix G, and a cluster's. */
const INTERNAL_NAME =
  /\.(?:localhost|localdomain|local|internal|home\.arpa|intranet|private|corp|home|lan|svc)$/

const HOST = /^[\w.:[\]-]+$/

/** The host as the URL parser writes it, which has one spelling per address, without the dot that may end a name. */
function normalize(host: string): string | undefined {
  if (!HOST.test(host)) return undefined
  const url = `http://${host.includes(':') && !host.startsWith('[') ? `[${host}]` : host}`
  if (!URL.canParse(url)) return undefined
  const name = new URL(url).hostname.replace(/\.$/, '')
  return name.split('.').includes('') ? undefined : name
}

type Bytes = readonly number[]

/** The four or sixteen bytes of an address; undefined for a name. */
function bytesOf(host: string): Bytes | undefined {
  if (/^\d+\.\d+\.\d+\.\d+$/.test(host)) return host.split('.').map(Number)
  if (!host.startsWith('[')) return undefined
  const [head = [], tail = []] = host
    .slice(1, -1)
    .split('::')
    .map((part) => (part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16))))
  const groups = [...head, ...Array<number>(8 - head.length - tail.length).fill(0), ...tail]
  return groups.flatMap((group) => [group >> 8, group & 255])
}

interface Range {
  readonly bytes: Bytes
  readonly bits: number
}

function toRange(text: string): Range {
  const [address = '', bits] = text.split('/')
  return { bytes: bytesOf(normalize(address) ?? '') ?? [], bits: Number(bits) }
}

function contains(ranges: readonly Range[], address: Bytes): boolean {
  return ranges.some(
    ({ bytes, bits }) => bytes.length === address.length && startsAlike(bytes, address, bits),
  )
}

function startsAlike(one: Bytes, other: Bytes, bits: number): boolean {
  return one.every((byte, index) => {
    const left = Math.max(0, Math.min(8, bits - index * 8))
    return (byte ^ (other[index] ?? 0)) >> (8 - left) === 0
  })
}

/** The IPv4 address that a mapped (RFC 4291) or translated (RFC 6052) IPv6 address stands for. */
function embeddedIn(address: Bytes): Bytes | undefined {
  return contains(EMBEDDING, address) ? address.slice(12) : undefined
}

const LOOPBACK = ['127.0.0.0/8', '::1/128'].map(toRange)
const MAPPED = ['::ffff:0:0/96'].map(toRange)
/** A translated address is on the other side of a gateway, even if it says 127.0.0.1. */
const EMBEDDING = [...MAPPED, toRange('64:ff9b::/96')]
const UNICAST = ['2000::/3'].map(toRange)

/** From IANA's registries of special-purpose addresses: what is not globally reachable, and what leads to another address. */
const NOT_PUBLIC = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  // The host of a virtual machine in Azure, which no other network leads to.
  '168.63.129.16/32',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  // Relays of 6to4.
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  // Protocol assignments, Teredo among them.
  '2001::/23',
  '2001:db8::/32',
  // 6to4.
  '2002::/16',
  '3fff::/20',
].map(toRange)
