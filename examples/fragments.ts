/** Lines that the guide shows on their own. They are compiled here, so they stay true. */

import { describe, it } from 'node:test'
import { createRestateStore } from '@rondo/restate'
import { type StoreHarness, storeContract, storeControls } from '@rondo/store-kit'
import { type Context, createServer, type Server } from 'rondo'
import { connect } from 'rondo/client'
import { oauth } from 'rondo/client/oauth'
import { oauthResource } from 'rondo/oauth'
import { createSqliteStore } from 'rondo/sqlite'
import { createBench } from 'rondo/testing'
import { z } from 'zod'
import { reports } from './12-tasks.ts'
import { travel } from './time.ts'

export async function listen(server: Server) {
  // #region listen
  const { url } = await server.listen({ port: 3000, host: '127.0.0.1' })
  // #endregion
  return url
}

export async function stdio(server: Server) {
  // #region stdio
  await server.stdio()
  // #endregion
}

type Verify = (token: string | undefined) => Promise<Record<'sub' | 'iss' | 'client_id', string> | undefined>

export function authenticated(verify: Verify) {
  // #region authenticate
  const server = createServer({
    name: 'tracker',
    version: '1.0.0',
    async authenticate({ headers }) {
      const claims = await verify(headers('authorization'))
      if (!claims) return { status: 401, headers: { 'WWW-Authenticate': 'Bearer' } }
      return { subject: claims.sub, issuer: claims.iss, client: claims.client_id }
    },
  })
  // #endregion
  return server
}

export function newestOnly() {
  // #region eras
  const server = createServer({ name: 'tracker', version: '1.0.0', eras: ['2026-07-28'] })
  // #endregion
  return server
}

export function withoutSessions() {
  // #region no-sessions
  const server = createServer({ name: 'tracker', version: '1.0.0', sessions: false })
  // #endregion
  return server
}

export async function withTasks() {
  // #region tasks
  const server = reports({ store: createSqliteStore({ file: './data/tasks.db' }) })
  await server.listen()
  // #endregion
}

export async function besideWork(ctx: Context, buildIndex: () => Promise<string[]>) {
  // #region beside-work
  const [index, { format }] = await Promise.all([
    ctx.step('index', () => buildIndex()),
    ctx.ask('format', { message: 'In which format?', schema: z.object({ format: z.enum(['pdf', 'csv']) }) }),
  ])
  // #endregion
  return { index, format }
}

export async function offer(ctx: Context, files: string[], importFile: (file: string) => Promise<void>) {
  // #region offer
  const stop = ctx.offer('stop', { message: 'Stop the import?', schema: z.object({ now: z.boolean() }) })
  for (const file of files) {
    await ctx.step(`import:${file}`, () => importFile(file))
    if (stop.peek()?.action === 'accept') return 'Stopped.'
  }
  // #endregion
  return 'Imported.'
}

export function withoutPerson() {
  // #region client-credentials
  const auth = oauth({
    grant: 'client_credentials',
    client: { id: 'nightly', secret: process.env.SECRET, issuer: 'https://id.example.com' },
  })
  // #endregion
  return auth
}

const common = { resource: 'https://mcp.example.com/mcp', issuers: ['https://id.example.com'] }

export const impliedScopes = () =>
  // #region implies
  oauthResource({
    ...common,
    implies: (granted, required) => granted === 'tickets:*' && required.startsWith('tickets:'),
  })
// #endregion

export const keycloak = () =>
  // #region keycloak
  oauthResource({
    resource: 'https://mcp.example.com/mcp',
    issuers: ['https://id.example.com/realms/tracker'],
    scopes: ['tickets:read'], // a client scope of the same name
  })
// #endregion

export const auth0 = () =>
  // #region auth0
  oauthResource({
    resource: 'https://mcp.example.com/mcp',
    issuers: ['https://tracker.eu.auth0.com/'],
    scopes: ['tickets:read'],
  })
// #endregion

export function entra() {
  // #region entra
  const app = '11111111-2222-3333-4444-555555555555'
  const authenticate = oauthResource({
    resource: 'https://mcp.example.com/mcp',
    issuers: ['https://login.microsoftonline.com/<tenant id>/v2.0'],
    audience: app,
    scopes: [`api://${app}/Tickets.Read`],
    granted: ({ scp }) =>
      String(scp ?? '')
        .split(' ')
        .map((scope) => `api://${app}/${scope}`),
  })
  // #endregion
  return authenticate
}

export async function lateTrip() {
  // #region advance
  const bench = createBench((options) => travel(() => {}, options))
  const task = bench.task('request_trip', { city: 'Oslo' })
  await task.next()
  await bench.advance('2 days')
  return task.next() // { kind: 'complete', text: 'Nobody decided on Oslo in time.' }
  // #endregion
}

export function withStore() {
  // #region store
  const store = createSqliteStore({ file: './data/tasks.db' })
  const server = createServer({ name: 'tracker', version: '1.0.0', store })
  // #endregion
  return server
}

export function withRestate() {
  // #region restate
  const store = createRestateStore({
    ingress: ['http://restate-1:8080', 'http://restate-2:8080', 'http://restate-3:8080'],
    admin: 'http://restate-1:9070',
    endpoint: {
      host: '0.0.0.0',
      port: 9080,
      url: 'http://rondo-workers:9080',
      identityKeys: ['publickeyv1_…'],
    },
  })
  // #endregion
  return store
}

export function contract(harness: StoreHarness) {
  // #region contract
  for (const { group, name, run } of [...storeContract(harness), ...storeControls(harness)])
    describe(group, () => it(name, run))
  // #endregion
}

export function deployed(createTracker: (options: object) => Server) {
  // #region deployed
  const server = createTracker({
    // RESOURCE: the public URL of /mcp, such as https://mcp.example.com/mcp. ISSUER: your authorization server.
    authenticate: oauthResource({
      resource: process.env.RESOURCE ?? '',
      issuers: [process.env.ISSUER ?? ''],
    }),
  })
  // #endregion
  return server
}

export async function listTools(url: string) {
  // #region list-tools
  const client = await connect(url)
  for (const { name, description } of await client.listTools()) console.log(name, description)
  await client.close()
  // #endregion
}

export function drawn(server: Server, html: string) {
  // #region drawn
  server.resource('ui://tables/seats', { name: 'seats', mimeType: 'text/html;profile=mcp-app' }, () => html)
  server.tool('book', {}, async (_args, ctx) => {
    const { seat } = await ctx.ask('seat', {
      message: 'Where do you want to sit?',
      schema: z.object({ seat: z.enum(['inside', 'outside']) }),
      ui: 'ui://tables/seats',
    })
    return `Booked ${seat}.`
  })
  // #endregion
}

type Draw = (uri: string, form: object) => Promise<{ action: 'accept'; content: { seat: string } }>

export function draws(url: string, drawApp: Draw, showForm: (form: object) => ReturnType<Draw>) {
  // #region draws
  const connected = connect(url, {
    answers: {
      apps: true,
      elicitation: { form: (params, { ui }) => (ui ? drawApp(ui, params) : showForm(params)) },
    },
  })
  // #endregion
  return connected
}
