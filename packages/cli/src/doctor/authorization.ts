/**
 * Examines how a server asks for a login: the challenge, the metadata, the authorization server, a wrong token. A token for
 * another server is sent if one is given, or if the stored login is that of a client with a secret, which can get one without a
 * person; so is a token with less scope.
 */

import { RondoError } from 'rondo'
import type { Challenge } from 'rondo/client'
import type { DoctorTokens } from 'rondo/internal'
import { createSafeFetch, LATEST_VERSION, parseChallenges, readIssuer, readProtection } from 'rondo/internal'
import { type DoctorFinding, fail, type Probe, type ProbeReply, pass, skip, warn } from './probe.ts'

interface Exam {
  readonly server: URL
  /** Sends requests without the credentials of the command line. */
  readonly probe: Probe
  /** Of the stored login. */
  readonly tokens?: DoctorTokens
  /** A token that was issued for another server. */
  readonly foreign?: string
}

const ELSEWHERE = 'https://another-server.example/mcp'

export async function checkAuthorization(exam: Exam): Promise<DoctorFinding[]> {
  const { server, probe, tokens } = exam
  const bare = await ask(probe, undefined)
  if (bare.status !== 401) {
    return [skip('auth', 'the server does not require a login')]
  }
  const challenges = challengesIn(bare)
  return [
    checkChallenge(challenges),
    ...(await checkMetadata(server, challenges)),
    checkWrong(await ask(probe, 'not-a-token')),
    await checkAudience(exam),
    await checkScope(probe, tokens),
  ]
}

function checkChallenge(challenges: readonly Challenge[]): DoctorFinding {
  const bearer = challenges.find(({ scheme }) => scheme.toLowerCase() === 'bearer')
  if (bearer === undefined)
    return fail(
      'auth-challenge',
      'the 401 has no Bearer challenge',
      'Send WWW-Authenticate: Bearer resource_metadata="…".',
    )
  const { resource_metadata: metadata, error, scope } = bearer.params
  if (metadata === undefined)
    return warn(
      'auth-challenge',
      'the challenge does not name the metadata',
      'Add resource_metadata="…" to it.',
    )
  if (error !== undefined)
    return warn(
      'auth-challenge',
      `the challenge says ${error} where no token was sent`,
      'Send no error without a token.',
    )
  return pass('auth-challenge', `names the metadata${scope === undefined ? '' : ' and the scopes'}`)
}

async function checkMetadata(server: URL, challenges: readonly Challenge[]): Promise<DoctorFinding[]> {
  const request = createSafeFetch({ server })
  const lookup = { server, request }
  try {
    const { resource, issuers, scopes = [] } = await readProtection(lookup, challenges)
    const [issuer = ''] = issuers
    const found = scopes.includes('offline_access')
      ? warn(
          'auth-metadata',
          'scopes_supported has offline_access',
          'Leave it out: it is between client and issuer.',
        )
      : pass('auth-metadata', `protects ${resource} with tokens of ${issuers.join(', ')}`)
    const as = await readIssuer(lookup, issuer)
    const methods: unknown = as.code_challenge_methods_supported
    const pkce = Array.isArray(methods) && methods.includes('S256')
    return [
      found,
      pkce
        ? pass('auth-issuer', `${issuer} has metadata and supports PKCE`)
        : fail(
            'auth-issuer',
            `${issuer} does not support PKCE with S256`,
            'Clients must refuse it: enable PKCE there.',
          ),
    ]
  } catch (error) {
    if (!(error instanceof RondoError)) throw error
    return [fail('auth-metadata', error.message, 'Publish metadata as RFC 9728 and RFC 8414 say.')]
  }
}

function checkWrong(reply: ProbeReply): DoctorFinding {
  if (reply.status !== 401)
    return fail(
      'auth-token',
      `a wrong token got HTTP status ${reply.status ?? 'none'}`,
      'Refuse it with status 401.',
    )
  const said = challengesIn(reply).some(({ params }) => params.error === 'invalid_token')
  return said
    ? pass('auth-token', 'a wrong token is refused')
    : warn(
        'auth-token',
        'a wrong token is refused without a reason',
        'Add error="invalid_token" to the challenge.',
      )
}

async function checkAudience({ probe, tokens, foreign }: Exam): Promise<DoctorFinding> {
  const how = 'Pass one that was issued for another server with --other-bearer.'
  if (tokens === undefined && foreign === undefined)
    return skip('auth-audience', 'there is no token for another server', how)
  const token = foreign ?? (await tokens?.({ resource: ELSEWHERE }).catch(sentence))
  if (typeof token !== 'string')
    return skip('auth-audience', `no token for another server: ${token?.said}`, how)
  if (foreign === undefined && !isFor(token, ELSEWHERE))
    return skip('auth-audience', 'the issuer gave no token for another server that can be told apart', how)
  const { status } = await ask(probe, token)
  if (status === 401) return pass('auth-audience', 'a token for another server is refused')
  return fail(
    'auth-audience',
    `a token for another server got HTTP status ${status ?? 'none'}`,
    'Compare the audience of every token with the URL of this server.',
  )
}

async function checkScope(probe: Probe, tokens: DoctorTokens | undefined): Promise<DoctorFinding> {
  if (tokens === undefined) return skip('auth-scope', 'there is no login with which to get a token')
  const token = await tokens({ scope: 'least' }).catch(sentence)
  if (typeof token !== 'string') return skip('auth-scope', `no token with less scope: ${token.said}`)
  const reply = await ask(probe, token, 'tools/list')
  if (reply.status !== 403) return skip('auth-scope', 'a token with less scope may list the tools')
  const bearer = challengesIn(reply).find(({ params }) => params.error === 'insufficient_scope')
  const { scope, resource_metadata: metadata } = bearer?.params ?? {}
  return scope !== undefined && metadata !== undefined
    ? pass('auth-scope', `a token with less scope is refused; ${scope} is asked for`)
    : warn(
        'auth-scope',
        'a token with less scope is refused without saying what is needed',
        'Send error="insufficient_scope", scope="…" and resource_metadata="…".',
      )
}

function sentence(error: unknown): { readonly said: string } {
  if (error instanceof RondoError) return { said: error.message }
  throw error
}

/** Reads the audience of a JWT. The token of this check only: whether it is valid is the server's business. */
function isFor(token: string, resource: string): boolean {
  try {
    const { aud } = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'))
    return [aud].flat().length > 0 && [aud].flat().every((one) => one === resource)
  } catch {
    return false
  }
}

function challengesIn({ headers }: ProbeReply): readonly Challenge[] {
  return parseChallenges([headers?.['www-authenticate']].flat().join(', '))
}

const META = {
  'io.modelcontextprotocol/protocolVersion': LATEST_VERSION,
  'io.modelcontextprotocol/clientCapabilities': {},
}

function ask(probe: Probe, token: string | undefined, method = 'server/discover'): Promise<ProbeReply> {
  const headers = { 'MCP-Protocol-Version': LATEST_VERSION, 'Mcp-Method': method }
  const credential = token === undefined ? undefined : `Bearer ${token}`
  return probe.send({ method, params: { _meta: META } }, { ...headers, Authorization: credential })
}
