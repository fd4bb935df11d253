import { RondoError } from 'rondo'
import { describe, expect, it } from 'vitest'
import { checkAuthorization } from './authorization.ts'
import type { Probe, ProbeReply } from './probe.ts'

const jwtFor = (aud: unknown): string => `e30.${Buffer.from(JSON.stringify({ aud })).toString('base64url')}.x`
const ELSEWHERE = jwtFor('https://another-server.example/mcp')
const LESS = jwtFor('here')
const METADATA = 'resource_metadata="http://127.0.0.1:9/metadata"'

const refuse = (status: number, challenge: string): ProbeReply => ({
  status,
  headers: { 'www-authenticate': challenge },
})

/** A server that answers by the token it gets. */
function probeOf(reply: (token: string | undefined) => ProbeReply): Probe {
  return {
    kind: 'http',
    send: async (_message, { Authorization: credential } = {}) => reply(credential?.replace('Bearer ', '')),
    notify: async () => {},
    visit: async () => ({}),
    close: async () => {},
  }
}

const careful = (token: string | undefined): ProbeReply => {
  if (token === undefined) return refuse(401, `Bearer ${METADATA}`)
  if (token === LESS) return refuse(403, `Bearer ${METADATA}, error="insufficient_scope", scope="a b"`)
  return refuse(401, `Bearer ${METADATA}, error="invalid_token"`)
}

async function examine(reply: (token: string | undefined) => ProbeReply, tokens = both) {
  const server = new URL('http://127.0.0.1:9/mcp')
  const findings = await checkAuthorization({ server, probe: probeOf(reply), tokens })
  return Object.fromEntries(findings.map(({ id, verdict }) => [id, verdict]))
}

const both = async ({ resource }: { readonly resource?: string }) =>
  resource === undefined ? LESS : ELSEWHERE

describe('the examination of a login', () => {
  it('passes a server that compares audience and scope', async () => {
    expect(await examine(careful)).toMatchObject({
      'auth-challenge': 'pass',
      'auth-metadata': 'fail',
      'auth-token': 'pass',
      'auth-audience': 'pass',
      'auth-scope': 'pass',
    })
  })

  it.each([
    ['takes a token for another server', 'auth-audience', 'fail', ELSEWHERE, { status: 200 }],
    ['takes any token', 'auth-token', 'fail', 'not-a-token', { status: 200 }],
    ['says nothing of a wrong token', 'auth-token', 'warn', 'not-a-token', refuse(401, 'Bearer')],
    ['has no challenge', 'auth-challenge', 'fail', undefined, { status: 401, headers: {} }],
    ['names no metadata', 'auth-challenge', 'warn', undefined, refuse(401, 'Bearer realm="x"')],
    [
      'sends an error without a token',
      'auth-challenge',
      'warn',
      undefined,
      refuse(401, `Bearer ${METADATA}, error="invalid_token"`),
    ],
    ['names no scope', 'auth-scope', 'warn', LESS, refuse(403, 'Bearer error="insufficient_scope"')],
  ] as const)('finds a server that %s', async (_what, id, verdict, trap, reply) => {
    const weak = (token: string | undefined) => (token === trap ? (reply as ProbeReply) : careful(token))
    expect(await examine(weak)).toMatchObject({ [id]: verdict })
  })

  it('skips what it cannot examine', async () => {
    expect(await examine(() => ({ status: 200 }))).toEqual({ auth: 'skip' })
    const nobody = async (): Promise<never> => {
      throw new RondoError('PEER_AUTHORIZATION', 'invalid_target')
    }
    expect(await examine(careful, nobody)).toMatchObject({ 'auth-audience': 'skip', 'auth-scope': 'skip' })
    const same = async () => jwtFor('here')
    expect(await examine(careful, same)).toMatchObject({ 'auth-audience': 'skip' })
  })
})
