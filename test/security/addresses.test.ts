/**
 * One table of hosts, and everything that allows or refuses a host: each must judge every row alike. What is on loopback may
 * be reached without encryption, and may name itself in `Host`; what is public may be named by a stranger.
 */

import { connect } from 'rondo/client'
import { oauth } from 'rondo/client/oauth'
import { introspection, oauthResource } from 'rondo/oauth'
import { describe, expect, it } from 'vitest'
import { isForeign } from '../../packages/cli/src/load-server.ts'
import { assertEndpoint } from '../../packages/restate/src/connection.ts'
import { checkUrl, createSafeFetch } from '../../packages/rondo/src/client/oauth/safe-fetch.ts'
import { inspectLink } from '../../packages/rondo/src/client/round.ts'
import { isLoopback, isPublic, LOOPBACK_NAMES } from '../../packages/rondo/src/lib/address.ts'
import { createKeySet } from '../../packages/rondo/src/oauth/remote.ts'
import { createAllowList } from '../../packages/rondo/src/serve/http/admission.ts'
import { replayFlow } from '../support/replay-flow.ts'

type Place = 'loopback' | 'internal' | 'public'

/** Hosts as a URL may have them. */
const HOSTS: readonly (readonly [host: string, place: Place])[] = [
  ['localhost', 'loopback'],
  ['LOCALHOST', 'loopback'],
  ['localhost.', 'loopback'],
  ['app.localhost', 'loopback'],
  ['app.localhost.', 'loopback'],
  ['127.0.0.1', 'loopback'],
  ['127.0.0.1.', 'loopback'],
  ['127.255.255.254', 'loopback'],
  ['127.1', 'loopback'],
  ['0x7f.1', 'loopback'],
  ['0177.0.0.1', 'loopback'],
  ['2130706433', 'loopback'],
  ['[::1]', 'loopback'],
  ['[0:0:0:0:0:0:0:1]', 'loopback'],
  ['[::ffff:127.0.0.1]', 'loopback'],
  ['[::ffff:7f00:1]', 'loopback'],
  ['x.internal', 'internal'],
  ['x.internal.', 'internal'],
  ['printer.local', 'internal'],
  ['printer.local.', 'internal'],
  ['router.home.arpa', 'internal'],
  ['localhost.localdomain', 'internal'],
  ['wiki.intranet', 'internal'],
  ['wiki.private', 'internal'],
  ['wiki.corp', 'internal'],
  ['router.home', 'internal'],
  ['router.lan', 'internal'],
  ['kubernetes.default.svc', 'internal'],
  ['metadata', 'internal'],
  ['metadata.', 'internal'],
  ['0.0.0.0', 'internal'],
  ['0', 'internal'],
  ['0.1.2.3', 'internal'],
  ['10.0.0.1', 'internal'],
  ['10.0.0.1.', 'internal'],
  ['0xa000001', 'internal'],
  ['100.64.0.1', 'internal'],
  ['100.127.255.255', 'internal'],
  ['168.63.129.16', 'internal'],
  ['169.254.169.254', 'internal'],
  ['2852039166', 'internal'],
  ['172.16.0.1', 'internal'],
  ['172.31.255.255', 'internal'],
  ['192.0.0.192', 'internal'],
  ['192.0.2.1', 'internal'],
  ['192.88.99.1', 'internal'],
  ['192.168.1.1', 'internal'],
  ['198.18.0.1', 'internal'],
  ['198.19.255.255', 'internal'],
  ['198.51.100.1', 'internal'],
  ['203.0.113.1', 'internal'],
  ['224.0.0.1', 'internal'],
  ['239.255.255.255', 'internal'],
  ['240.0.0.1', 'internal'],
  ['255.255.255.255', 'internal'],
  ['[::]', 'internal'],
  ['[::a00:1]', 'internal'],
  ['[::808:808]', 'internal'],
  ['[::ffff:10.0.0.1]', 'internal'],
  ['[::ffff:169.254.169.254]', 'internal'],
  ['[64:ff9b::127.0.0.1]', 'internal'],
  ['[64:ff9b::10.0.0.1]', 'internal'],
  ['[64:ff9b::a9fe:a9fe]', 'internal'],
  ['[64:ff9b:1::808:808]', 'internal'],
  ['[100::1]', 'internal'],
  ['[2001::1]', 'internal'],
  ['[2001:0:5ef5:79fb::1]', 'internal'],
  ['[2001:db8::1]', 'internal'],
  ['[2002:a00:1::1]', 'internal'],
  ['[2002:808:808::1]', 'internal'],
  ['[3fff::1]', 'internal'],
  ['[fc00::1]', 'internal'],
  ['[fd00:ec2::254]', 'internal'],
  ['[fe80::1]', 'internal'],
  ['[febf::1]', 'internal'],
  ['[fec0::1]', 'internal'],
  ['[ff02::1]', 'internal'],
  ['example.com', 'public'],
  ['example.com.', 'public'],
  ['10.0.0.1.example.com', 'public'],
  ['localhost.example.com', 'public'],
  ['internal.example.com', 'public'],
  ['notinternal', 'internal'],
  ['x.notinternal', 'public'],
  ['8.8.8.8', 'public'],
  ['9.255.255.255', 'public'],
  ['11.0.0.1', 'public'],
  ['100.63.255.255', 'public'],
  ['100.128.0.1', 'public'],
  ['126.255.255.255', 'public'],
  ['128.0.0.1', 'public'],
  ['169.253.0.1', 'public'],
  ['172.15.255.255', 'public'],
  ['172.32.0.1', 'public'],
  ['192.0.1.1', 'public'],
  ['198.17.255.255', 'public'],
  ['198.20.0.1', 'public'],
  ['223.255.255.255', 'public'],
  ['[2606:4700::1]', 'public'],
  ['[2001:200::1]', 'public'],
  ['[2003::1]', 'public'],
  ['[::ffff:8.8.8.8]', 'public'],
  ['[64:ff9b::8.8.8.8]', 'public'],
]

const ISSUER = 'https://id.example'
const RESOURCE = 'https://mcp.example/mcp'

/** An authorization server whose metadata names one URL for everything. Returns the hosts that were asked. */
function issuerNaming(url: string) {
  const asked: string[] = []
  const fetch = async (address: string): Promise<Response> => {
    asked.push(address)
    if (!address.startsWith(ISSUER)) return Response.json({ keys: [], active: false })
    return Response.json({ issuer: ISSUER, jwks_uri: url, introspection_endpoint: url })
  }
  return { fetch, leads: () => asked.includes(url) }
}

const succeeds = (run: () => unknown): boolean => {
  try {
    return run() !== undefined
  } catch {
    return false
  }
}

const settles = (run: () => Promise<unknown>): Promise<boolean> =>
  run().then(
    () => true,
    () => false,
  )

/** The requests that only a public host may get. */
const NAMED_BY_A_STRANGER: Readonly<Record<string, (host: string) => boolean | Promise<boolean>>> = {
  isPublic,
  async 'the keys of an issuer'(host) {
    const { fetch, leads } = issuerNaming(`https://${host}/jwks`)
    const set = createKeySet({ issuer: ISSUER, fetch, now: () => 0, cooldownMs: 0, maxAgeMs: 1 })
    await set.keys(() => true).catch(() => {})
    return leads()
  },
  async 'the introspection endpoint of an issuer'(host) {
    const { fetch, leads } = issuerNaming(`https://${host}/introspect`)
    const tokens = introspection({ client: { id: 'a', secret: 'b' } })
    await oauthResource({ resource: RESOURCE, issuers: [ISSUER], tokens, fetch }).verify('token')
    return leads()
  },
  'a URL that a public server names': (host) =>
    succeeds(() => checkUrl(`https://${host}/`, { server: new URL(RESOURCE) })),
  'a name that stands for the address': (host) => {
    // Only addresses can be looked up.
    const address = new URL(`https://${host}/`).hostname.replace(/^\[|\]$/g, '')
    if (!/^[\d.]+$|:/.test(address)) return isPublic(host)
    const get = createSafeFetch({
      server: new URL(RESOURCE),
      network: { lookup: async (name) => (name === 'id.example' ? [address] : []), holds: async () => false },
      fetch: async () => Response.json({}),
    })
    return settles(() => get(`${ISSUER}/`, { method: 'GET' }))
  },
}

/** The requests that only a host of this machine may get. */
const OF_THIS_MACHINE: Readonly<Record<string, (host: string) => boolean | Promise<boolean>>> = {
  isLoopback,
  'a resource without https': (host) =>
    succeeds(() => oauthResource({ resource: `http://${host}/mcp`, issuers: [ISSUER] })),
  'an issuer without https': (host) =>
    succeeds(() => oauthResource({ resource: RESOURCE, issuers: [`http://${host}`] })),
  'an address to play a file on, where pages of other sites are refused': (host) =>
    isForeign({ headers: { host: 'evil.example' } }, host),
  'a link to open without https': (host) => inspectLink(`http://${host}/`) !== undefined,
  async 'a page to visit without https'(host) {
    const url = `http://${host}/`
    const { ending } = await replayFlow((ctx) => ctx.visit('page', { message: 'Open', url })).round()
    return ending.kind === 'asking'
  },
  'the address of a Restate endpoint without identity keys'(host) {
    try {
      assertEndpoint({ port: 1, host })
      return true
    } catch (error) {
      return !String(error).includes('identityKeys is missing')
    }
  },
  async 'a server to which a token is sent without https'(host) {
    const auth = oauth({ client: { id: 'desk' } })
    const reached: string[] = []
    const fetch = async (url: RequestInfo | URL): Promise<Response> => {
      reached.push(String(url))
      return new Response(null, { status: 404 })
    }
    await connect(`http://${host}/mcp`, { auth, fetch }).catch(() => {})
    return reached.length > 0
  },
}

/** The functions that compare names as they are written. */
const AS_WRITTEN: Readonly<Record<string, (host: string) => boolean>> = {
  'a Host without a list': (host) => createAllowList({}).host(`${host}:3000`),
  'an Origin without a list': (host) => createAllowList({}).origin(`http://${host}:3000`),
  'the Host of a file that is played': (host) => !isForeign({ headers: { host } }, '127.0.0.1'),
  'the Origin of a page that calls a file that is played': (host) =>
    !isForeign({ headers: { host: 'localhost:1', origin: `http://${host}` } }, '127.0.0.1'),
}

/** The rows that a caller judges otherwise. */
async function disagreements(
  allows: (host: string) => boolean | Promise<boolean>,
  wanted: Place,
): Promise<unknown[]> {
  const judged = HOSTS.map(async ([host, place]) => ({ host, place, allowed: await allows(host) }))
  return (await Promise.all(judged)).filter(({ place, allowed }) => allowed !== (place === wanted))
}

describe('one table of hosts', () => {
  it.each(Object.entries(NAMED_BY_A_STRANGER))(
    'T30 T32 %s is allowed for public hosts alone',
    async (_caller, allows) => {
      expect(await disagreements(allows, 'public')).toEqual([])
    },
  )

  it.each(Object.entries(OF_THIS_MACHINE))(
    'T12 T22 %s is allowed for loopback alone',
    async (_caller, allows) => {
      expect(await disagreements(allows, 'loopback')).toEqual([])
    },
  )

  it.each(Object.entries(AS_WRITTEN))(
    'T12 %s is allowed for three names of loopback alone',
    (_caller, allows) => {
      const allowed = HOSTS.flatMap(([host]) => (allows(host) ? [host.toLowerCase()] : []))
      expect([...new Set(allowed)]).toEqual(LOOPBACK_NAMES)
      expect(LOOPBACK_NAMES.every(isLoopback)).toBe(true)
    },
  )

  it('a guard that knows fewer spellings disagrees: the control', async () => {
    const naive = (host: string): boolean => host === 'localhost' || host.startsWith('127.')
    expect((await disagreements(naive, 'loopback')).length).toBeGreaterThan(5)
  })
})

describe('a text that is not a host', () => {
  it.each([
    '',
    ' ',
    '.',
    '..',
    'localhost..',
    'a..b.example',
    'localhost/',
    'localhost\\evil.example',
    'localhost?',
    'localhost#',
    'user@localhost',
    'localhost:3000',
    '%6cocalhost',
    '127.0.0.1 ',
    '127.0.0.256',
    '1.2.3.4.5',
    'fe80::1%eth0',
    '[::1',
    '[::1]]',
    '::1::',
  ])('%j is neither on loopback nor public', (text) => {
    expect([isLoopback(text), isPublic(text)]).toEqual([false, false])
  })

  it('an address may be written without brackets', () => {
    expect([isLoopback('::1'), isPublic('::1'), isPublic('2606:4700::1')]).toEqual([true, false, true])
  })
})
