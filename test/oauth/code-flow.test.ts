/** End to end: a real authorization server, the code flow, and our server, which asks in the middle of a call. */

import { decodeJwt } from 'jose'
import type { LogEvent } from 'rondo'
import { introspection, oauthResource } from 'rondo/oauth'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type AuthorizationServer,
  ROBOT_SECRET,
  startAuthorizationServer,
} from '../support/authorization-server.ts'
import { call, createProtectedServer, readChallenge, request } from '../support/protected-server.ts'

const RESOURCE = 'http://127.0.0.1:7801/mcp'
const ALL = 'tickets:read tickets:write tickets:refund'
const YES = { inputResponses: { sure: { action: 'accept', content: { confirm: true } } } }
let issuer: AuthorizationServer
beforeAll(async () => {
  issuer = await startAuthorizationServer({ scopes: ALL })
})
afterAll(() => issuer.close())

const open = (options: Partial<Parameters<typeof oauthResource>[0]> = {}) => {
  const events: LogEvent[] = []
  const authenticate = oauthResource({
    resource: RESOURCE,
    issuers: [issuer.issuer],
    scopes: ['tickets:read'],
    ...options,
  })
  const made = createProtectedServer({ authenticate, log: (event) => void events.push(event) })
  return { ...made, events, authenticate }
}
const tokenFor = (scope = ALL, more: { client?: string; user?: string } = {}) =>
  issuer.authorize({ resource: RESOURCE, scope, ...more })

/** The first round of a call that asks. */
const begin = async (server: Parameters<typeof request>[0], token: string) => {
  const first = await request(server, token, 'tools/call', call('refund', { amount: 5 }))
  expect(first.result).toMatchObject({ resultType: 'input_required' })
  return { ...YES, requestState: first.result?.requestState }
}

describe('a call of a caller with a token', () => {
  it('H3 has a principal that is issuer, subject and client', async () => {
    const { server } = open()
    const { access_token } = await tokenFor('tickets:read')
    const { result } = await request(server, access_token, 'tools/call', call('whoami'))
    expect(result?.structuredContent).toEqual({
      issuer: issuer.issuer,
      subject: 'alice',
      client: 'desk',
      scopes: ['tickets:read'],
    })
  })

  it('H3 completes although the token was refreshed between the rounds', async () => {
    const { server } = open()
    const first = await tokenFor()
    const answers = await begin(server, first.access_token)
    const second = await issuer.refresh({ refreshToken: first.refresh_token ?? '', resource: RESOURCE })
    expect(second.access_token).not.toBe(first.access_token)
    const done = await request(
      server,
      second.access_token,
      'tools/call',
      call('refund', { amount: 5 }, answers),
    )
    expect(done.result).toMatchObject({ content: [{ text: 'refunded 5' }] })
  })

  it.each([
    ["another user's token", { user: 'bob' }],
    ["another client's token", { client: 'phone' }],
  ])('H3 refuses a state with %s, with the one error', async (_what, more) => {
    const { server, ran } = open()
    const answers = await begin(server, (await tokenFor()).access_token)
    const other = await tokenFor(ALL, more)
    const refused = await request(
      server,
      other.access_token,
      'tools/call',
      call('refund', { amount: 5 }, answers),
    )
    expect(refused.error).toMatchObject({ code: -32602, message: 'Invalid or expired requestState' })
    expect(ran).toEqual(['refund'])
  })

  it('H2 T33 refuses the second round with less scope, and names every scope in one challenge', async () => {
    const { server, ran } = open()
    const first = await tokenFor()
    const answers = await begin(server, first.access_token)
    const less = await issuer.refresh({
      refreshToken: first.refresh_token ?? '',
      resource: RESOURCE,
      scope: 'tickets:read tickets:write',
    })
    expect(decodeJwt(less.access_token).scope).toBe('tickets:read tickets:write')
    const refused = await request(
      server,
      less.access_token,
      'tools/call',
      call('refund', { amount: 5 }, answers),
    )
    expect(refused).toMatchObject({
      status: 403,
      error: { code: -32000, data: { requiredScopes: ['tickets:read', 'tickets:write', 'tickets:refund'] } },
    })
    expect(readChallenge(refused.challenge)).toEqual({
      error: 'insufficient_scope',
      error_description: expect.any(String),
      scope: 'tickets:read tickets:write tickets:refund',
      resource_metadata: 'http://127.0.0.1:7801/.well-known/oauth-protected-resource/mcp',
    })
    expect(ran).toEqual(['refund'])
    const more = await issuer.refresh({ refreshToken: less.refresh_token ?? '', resource: RESOURCE })
    const done = await request(
      server,
      more.access_token,
      'tools/call',
      call('refund', { amount: 5 }, answers),
    )
    expect(done.result).toMatchObject({ content: [{ text: 'refunded 5' }] })
  })

  it('H2 refuses an update, a look, a subscription and a cancellation of a task with less scope', async () => {
    const { server } = open()
    const { access_token } = await tokenFor()
    const less = (await tokenFor('tickets:read')).access_token
    const created = await request(server, access_token, 'tools/call', call('report'))
    const { taskId } = created.result as { taskId: string }
    const inputResponses = { month: { action: 'accept', content: { month: 'May' } } }
    for (const [method, params] of [
      ['tasks/update', { taskId, inputResponses }],
      ['tasks/get', { taskId }],
      ['tasks/cancel', { taskId }],
      ['subscriptions/listen', { notifications: { taskIds: [taskId] } }],
    ] as const) {
      const refused = await request(server, less, method, params)
      expect([method, refused.status, readChallenge(refused.challenge).scope]).toEqual([
        method,
        403,
        'tickets:read tickets:write',
      ])
    }
    await expect
      .poll(async () => (await request(server, access_token, 'tasks/get', { taskId })).result?.status)
      .toBe('input_required')
    await request(server, access_token, 'tasks/update', { taskId, inputResponses })
    await expect
      .poll(async () => (await request(server, access_token, 'tasks/get', { taskId })).result?.status)
      .toBe('completed')
    await server.close()
  })

  it('H2 does not find a task whose id was changed to ask for less', async () => {
    const { server } = open()
    const { access_token } = await tokenFor()
    const less = (await tokenFor('tickets:read')).access_token
    const { result } = await request(server, access_token, 'tools/call', call('report'))
    const taskId = String(result?.taskId)
    for (const forged of [
      taskId.slice(0, 22),
      `${taskId.slice(0, 22)}_`,
      `${taskId.slice(0, 22)}_dGlja2V0czpyZWFk`,
    ]) {
      const unknown = await request(server, less, 'tasks/get', { taskId: forged })
      expect(unknown.error).toMatchObject({ message: 'Task not found' })
    }
    await server.close()
  })

  it('T3 T16 keeps tokens out of responses, states, tasks and the log, whatever becomes of a request', async () => {
    const { server, events, ran } = open()
    const good = (await tokenFor()).access_token
    const less = (await tokenFor('tickets:read')).access_token
    const { refresh_token: refresh = '' } = await tokenFor()
    const [head, claims, signature] = good.split('.')
    const forged = `${head}.${claims}.${signature?.split('').reverse().join('')}`
    const answers = await begin(server, good)
    const said: unknown[] = []
    for (const token of [good, less, forged, refresh, `${good}~`, `${good}.${good}`, '..']) {
      for (const [method, params] of [
        ['tools/call', call('refund', { amount: 5 }, answers)],
        ['tools/call', call('whoami')],
        ['tools/call', call('report')],
        ['tools/call', call('nothing')],
        ['tasks/get', { taskId: 'nothing' }],
      ] as const) {
        const { headers, ...rest } = await request(server, token, method, params)
        said.push([...headers], rest)
      }
    }
    expect(ran).toContain('report')
    expect(events.filter(({ event }) => event === 'caller_refused').length).toBeGreaterThanOrEqual(5)
    const text = JSON.stringify([said, events, answers])
    expect(text).toContain('refunded 5')
    for (const secret of [claims, signature, less.split('.')[2], refresh, forged.split('.')[2]]) {
      expect(secret?.length).toBeGreaterThan(20)
      expect(text).not.toContain(secret)
    }
    await server.close()
  })

  it('H1 works with a robot, which is its own subject', async () => {
    const { server } = open()
    const { access_token } = await issuer.robot({ resource: RESOURCE, scope: 'tickets:read' })
    const { result } = await request(server, access_token, 'tools/call', call('whoami'))
    expect(result?.structuredContent).toMatchObject({ subject: 'robot', client: 'robot' })
  })

  it('H1 works with opaque tokens, which the issuer is asked about, and with no refresh token', async () => {
    const tokens = introspection({ client: { id: 'resource', secret: ROBOT_SECRET } })
    const { server, events } = open({ tokens })
    issuer.format = 'opaque'
    const { access_token, refresh_token } = await tokenFor().finally(() => {
      issuer.format = 'jwt'
    })
    const { result } = await request(server, access_token, 'tools/call', call('whoami'))
    expect(result?.structuredContent).toMatchObject({
      issuer: issuer.issuer,
      subject: 'alice',
      client: 'desk',
    })
    for (const token of [refresh_token, 'made-up']) {
      expect(await request(server, token, 'tools/call', call('whoami'))).toMatchObject({ status: 401 })
    }
    expect(events.filter(({ event }) => event === 'caller_refused')).toHaveLength(2)
  })
})
