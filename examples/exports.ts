/** The examples that an editor shows for each exported value. They are compiled here, so they stay true. */

import { readFile } from 'node:fs/promises'
import { describe, it } from 'node:test'
import { McpServer } from '@modelcontextprotocol/server'
import { createApprovals, email, oidc, slack, verifyRecord, webhook } from '@rondo/approvals'
import { createGateway } from '@rondo/gateway'
import { createRestateStore } from '@rondo/restate'
import {
  alarmContract,
  alarmControls,
  approvalContract,
  approvalControls,
  type EngineHarness,
  engineContract,
  engineControls,
  fleetContract,
  fleetControls,
  operatorContract,
  operatorControls,
  permitContract,
  permitControls,
  type StoreHarness,
  storeContract,
  storeControls,
} from '@rondo/store-kit'
import {
  ApprovalDenied,
  ApprovalExpired,
  type Context,
  createJsonLog,
  createServer,
  EventExpired,
  EventRejected,
  Fatal,
  generateKey,
  type Hook,
  InputCancelled,
  InputDeclined,
  InputExpired,
  inputRequired,
  keysFromEnv,
  keysFromFile,
  keysFromFunction,
  parseKeys,
  RetryLater,
  type Server,
  ToolError,
  toLogRecord,
} from 'rondo'
import {
  abandon,
  allowUrlHosts,
  answer,
  type Client,
  connect,
  displayText,
  type ElicitFormParams,
  type FlowRequest,
  type InputRequest,
  inspectLink,
  kindOf,
  LIMITS,
  maxRoundsPerServer,
  noSecretsInForms,
  openPending,
  openQuestions,
  PeerError,
  type PendingCall,
  parsePending,
  RondoError,
  refuseSampling,
  sealPending,
} from 'rondo/client'
import {
  enterprise,
  exchange,
  loopback,
  memoryTokenStore,
  oauth,
  parseLogin,
  workload,
} from 'rondo/client/oauth'
import { JsonRpcError, rateLimit } from 'rondo/extension'
import { askInPage, defineFormElement } from 'rondo/form-element'
import { checkField, checkForm, cleanText, type Field, readForm, startValues } from 'rondo/forms'
import { forwarding, type TaskState, taskCreated, UpstreamError } from 'rondo/forward'
import { introspection, jwt, oauthResource } from 'rondo/oauth'
import { otel } from 'rondo/otel'
import { createPostgresStore } from 'rondo/postgres'
import { createRondo } from 'rondo/sdk'
import { createSqliteStore } from 'rondo/sqlite'
import { changeRows, createEpoch, createHintBus, type TaskOwner, type TaskRow } from 'rondo/store'
import { cancel, createBench, decline, importBench, type TestBench } from 'rondo/testing'
import { z } from 'zod'

const Seat = z.object({ seat: z.enum(['inside', 'outside']) })

export function servers() {
  // #region createServer
  const server = createServer({ name: 'tables', version: '1.0.0' })
  server.tool('book', { description: 'Books a table' }, async (_, ctx) => {
    const schema = z.object({ seat: z.enum(['inside', 'outside']) })
    const { seat } = await ctx.ask('seat', { message: 'Where?', schema })
    return `Booked: ${seat}.`
  })
  // #endregion
  return server
}

export function manual(name: string | undefined) {
  // #region inputRequired
  const params: ElicitFormParams = {
    mode: 'form',
    message: 'Who are you?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
  }
  if (!name) return inputRequired({ inputRequests: { name: { method: 'elicitation/create', params } } })
  // #endregion
  return name
}

export async function refused(ctx: Context, hook: Hook<unknown>) {
  try {
    await ctx.ask('seat', { message: 'Where?', schema: Seat })
    await hook.received()
  } catch (error) {
    // #region InputDeclined
    if (error instanceof InputDeclined) return 'Nothing was booked.'
    // #endregion
    // #region InputCancelled
    if (error instanceof InputCancelled) return 'Ask again when you are ready.'
    // #endregion
    // #region InputExpired
    if (error instanceof InputExpired) return 'Booked any seat.'
    // #endregion
    // #region ApprovalDenied
    if (error instanceof ApprovalDenied) return `${error.by[0]?.name} said no.`
    // #endregion
    // #region ApprovalExpired
    if (error instanceof ApprovalExpired) return 'Nobody decided in time.'
    // #endregion
    // #region EventExpired
    if (error instanceof EventExpired) return 'Nobody paid in time.'
    // #endregion
    // #region EventRejected
    if (error instanceof EventRejected) return `The payment cannot be read: ${error.problem}`
    // #endregion
  }
  return 'Booked.'
}

export async function gateways() {
  // #region createGateway
  const gateway = createGateway({
    name: 'tools',
    version: '1.0.0',
    upstreams: { crm: { url: 'https://crm.example/mcp' }, files: { command: 'node', args: ['files.js'] } },
  })
  await gateway.listen({ port: 3000 })
  // #endregion
}

export function serveOthers(server: Server, client: Client) {
  // #region forwarding
  const row = { name: 'search', inputSchema: { type: 'object' } }
  forwarding(server).declare('tools', 'search', {
    row,
    run: async (args, ctx) => ({ ...(await client.callTool('search', { ...args }, { signal: ctx.signal })) }),
  })
  // #endregion
}

export async function handOver(task: TaskState, seal: (id: string) => Promise<string>) {
  // #region taskCreated
  return taskCreated({ ...task, taskId: await seal(task.taskId) })
  // #endregion
}

export function failAsThere(): never {
  // #region UpstreamError
  throw new UpstreamError({ code: -32602, message: 'Unknown tool: search' })
  // #endregion
}

export function fail(): never {
  // #region ToolError
  throw new ToolError('There is no table for 40 people.')
  // #endregion
}

export function retried(response: Response) {
  // #region Fatal
  if (response.status === 404) throw new Fatal('The account is gone')
  // #endregion
  // #region RetryLater
  if (response.status === 429) throw new RetryLater(`${response.headers.get('retry-after') ?? 60} s`)
  // #endregion
}

export async function coded(client: Client) {
  // #region RondoError
  try {
    await client.callTool('book')
  } catch (error) {
    if (error instanceof RondoError && error.code === 'PEER_UNREACHABLE') return 'Try again later.'
    throw error
  }
  // #endregion
  return 'Booked.'
}

export async function peers(client: Client) {
  // #region PeerError
  try {
    await client.callTool('book')
  } catch (error) {
    if (error instanceof PeerError) console.error(error.peer.code, error.peer.message)
    throw error
  }
  // #endregion
}

export function keys(fetchSecret: (name: string) => Promise<string>) {
  // #region generateKey
  const key = generateKey('2026-07')
  // #endregion
  // #region keysFromEnv
  const server = createServer({ name: 'tables', version: '1.0.0', keys: keysFromEnv() })
  // #endregion
  // #region keysFromFile
  const fromFile = keysFromFile('/run/secrets/rondo-keys', { refreshMs: 60_000 })
  // #endregion
  // #region keysFromFunction
  const fromFunction = keysFromFunction(() => fetchSecret('rondo-keys'))
  // #endregion
  // #region parseKeys
  const ring = parseKeys(`${generateKey('new')},${generateKey('old')}`)
  // #endregion
  return { key, server, fromFile, fromFunction, ring }
}

export function logs(send: (record: object) => void) {
  // #region createJsonLog
  const toStderr = createJsonLog()
  const server = createServer({
    name: 'tables',
    version: '1.0.0',
    log: (event) => {
      if (event.level !== 'info') toStderr(event)
    },
  })
  // #endregion
  // #region toLogRecord
  const shipped = createServer({ name: 'tables', version: '1.0.0', log: (event) => send(toLogRecord(event)) })
  // #endregion
  return [server, shipped]
}

export async function connected() {
  // #region connect
  const client = await connect('https://tables.example.com/mcp', {
    answers: { elicitation: { form: () => ({ action: 'accept', content: { seat: 'inside' } }) } },
  })
  const result = await client.callTool('book')
  // #endregion
  return result
}

export async function limits() {
  // #region LIMITS
  const client = await connect('https://tables.example.com/mcp', { timeoutMs: 2 * LIMITS.timeoutMs })
  // #endregion
  return client
}

export function pendingCalls(pending: PendingCall<FlowRequest>, key: Uint8Array) {
  // #region openQuestions
  for (const [name, question] of openQuestions(pending)) console.log(name, question.params)
  // #endregion
  // #region answer
  const answered = answer(pending, 'seat', { action: 'accept', content: { seat: 'inside' } })
  // #endregion
  // #region abandon
  const abandoned = abandon(pending)
  // #endregion
  // #region parsePending
  const read = parsePending(JSON.stringify(pending))
  // #endregion
  // #region sealPending
  const sealed = sealPending(pending, key)
  // #endregion
  // #region openPending
  const opened = openPending(sealed, key)
  // #endregion
  return [answered, abandoned, read, opened]
}

export async function policies() {
  // #region allowUrlHosts
  const ours = await connect('https://tables.example.com/mcp', {
    onRound: [allowUrlHosts(['*.example.com'])],
  })
  // #endregion
  // #region maxRoundsPerServer
  const patient = await connect('https://tables.example.com/mcp', {
    onRound: [maxRoundsPerServer(50, { withinMs: 60 * 60 * 1000 })],
  })
  // #endregion
  // #region noSecretsInForms
  const careful = await connect('https://tables.example.com/mcp', { onRound: [noSecretsInForms()] })
  // #endregion
  // #region refuseSampling
  const thrifty = await connect('https://tables.example.com/mcp', { onRound: [refuseSampling()] })
  // #endregion
  return [ours, patient, careful, thrifty]
}

export function shown(question: InputRequest, text: string) {
  // #region inspectLink
  const link = inspectLink('https://pay.example.com/42')
  if (!link) throw new Error('This link is not safe.')
  // #endregion
  // #region displayText
  console.log(displayText(text))
  // #endregion
  // #region kindOf
  if (kindOf(question) === 'url') console.log('A page has to be opened.')
  // #endregion
  // #region cleanText
  console.log(cleanText(text, 80))
  // #endregion
  return link
}

export async function formElement(url: string) {
  // #region defineFormElement
  defineFormElement()
  // #endregion
  // #region askInPage
  const elicitation = { form: askInPage(document.body) }
  const client = await connect(url, { answers: { elicitation } })
  // #endregion
  return client
}

export function forms(requestedSchema: unknown, typed: Record<string, string>, field: Field) {
  // #region readForm
  const { fields } = readForm(requestedSchema)
  for (const { title, required } of fields) console.log(title, required)
  // #endregion
  // #region startValues
  const values = { ...startValues(fields), ...typed }
  // #endregion
  // #region checkForm
  const checked = checkForm(fields, values)
  if (!checked.ok) console.log(checked.problems)
  // #endregion
  // #region checkField
  const one = checkField(field, '42')
  if (!one.ok) console.log(one.message)
  // #endregion
}

export async function logins(file: string) {
  // #region oauth
  const auth = oauth({ login: loopback({ onLink: ({ url }) => console.log(url.href) }) })
  const client = await connect('https://tables.example.com/mcp', { auth })
  // #endregion
  // #region loopback
  const onFixedPort = oauth({ login: loopback({ port: 8765, onLink: ({ url }) => console.log(url.href) }) })
  // #endregion
  // #region memoryTokenStore
  const forgetful = oauth({ store: memoryTokenStore() })
  // #endregion
  // #region parseLogin
  const login = parseLogin(JSON.parse(await readFile(file, 'utf8')))
  // #endregion
  return { client, onFixedPort, forgetful, login }
}

export function identities(secret: string, companySecret: string) {
  // #region workload
  const asWorkload = oauth({
    client: { id: 'reports', issuer: 'https://login.example.com' },
    grant: workload({ file: '/var/run/secrets/tokens/mcp' }),
  })
  // #endregion
  // #region enterprise
  const asEmployee = oauth({
    client: { id: 'desk', secret, issuer: 'https://login.example.com' },
    grant: enterprise({
      issuer: 'https://id.company.example',
      client: { id: 'desk-at-company', secret: companySecret },
      login: loopback({ onLink: ({ url }) => console.log(url.href) }),
    }),
  })
  // #endregion
  // #region bind-tokens
  const bound = oauth({
    dpop: true,
    login: loopback({ onLink: ({ url }) => console.log(url.href) }),
  })
  // #endregion
  // #region exchange
  const credentials = exchange({
    issuer: 'https://login.example.com',
    client: { id: 'gateway', secret },
    resources: { tables: 'https://tables.example.com/mcp' },
  })
  // #endregion
  return { asWorkload, asEmployee, bound, credentials }
}

export function protectedServers(secret: string) {
  // #region oauthResource
  const authenticate = oauthResource({
    resource: 'https://tables.example.com/mcp',
    issuers: ['https://login.example.com'],
  })
  const server = createServer({ name: 'tables', version: '1.0.0', authenticate })
  // #endregion
  // #region jwt
  const withJwt = oauthResource({
    resource: 'https://tables.example.com/mcp',
    issuers: ['https://login.example.com'],
    tokens: jwt({ algorithms: ['ES256'] }),
  })
  // #endregion
  // #region introspection
  const asking = oauthResource({
    resource: 'https://tables.example.com/mcp',
    issuers: ['https://login.example.com'],
    tokens: introspection({ client: { id: 'tables', secret } }),
  })
  // #endregion
  // #region rateLimit
  server.use(rateLimit({ tools: { search: { calls: 10, perMs: 60_000 } } }))
  // #endregion
  // #region accept-bound-tokens
  const checkingProofs = oauthResource({
    resource: 'https://tables.example.com/mcp',
    issuers: ['https://login.example.com'],
    dpop: { store: createSqliteStore({ file: 'tables.db' }) },
  })
  // #endregion
  return { server, withJwt, asking, checkingProofs }
}

export function telemetry() {
  // #region otel
  const server = createServer({ name: 'tables', version: '1.0.0', telemetry: otel() })
  // #endregion
  return server
}

export function official() {
  // #region createRondo
  const rondo = createRondo({ audience: 'tables' })
  const server = rondo.mount(new McpServer({ name: 'tables', version: '1.0.0' }))
  server.registerTool(
    'book',
    { description: 'Books a table', inputSchema: z.object({}) },
    rondo.tool(async (_, ctx) => {
      const sure = await ctx.confirm('sure', 'Book a table for two?')
      return { content: [{ type: 'text', text: sure ? 'Booked.' : 'Nothing was booked.' }] }
    }),
  )
  // #endregion
  return server
}

export function stores() {
  // #region createSqliteStore
  const onDisk = createSqliteStore({ file: './data/tasks.db' })
  const server = createServer({ name: 'tables', version: '1.0.0', store: onDisk })
  // #endregion
  // #region createPostgresStore
  const shared = createPostgresStore({ connectionString: 'postgres://db.example.com/tables' })
  const fleet = createServer({ name: 'tables', version: '1.0.0', store: shared })
  // #endregion
  return [server, fleet]
}

export async function ownStore(rows: TaskRow[], id: string, owner: TaskOwner, values: Map<string, string>) {
  // #region changeRows
  const { result, changed } = await changeRows(rows, Date.now(), (tasks) => tasks.cancel(id, owner))
  for (const row of changed) values.set(row.id, JSON.stringify(row))
  // #endregion
  // #region createHintBus
  const { publish, onHint } = createHintBus()
  publish({ kind: 'changed', id })
  // #endregion
  // #region createEpoch
  if (!values.has('epoch')) values.set('epoch', createEpoch())
  // #endregion
  return { result, onHint }
}

export async function benches(file: string) {
  // #region createBench
  const bench = createBench((options) => createServer({ name: 'tables', version: '1.0.0', ...options }))
  // #endregion
  // #region importBench
  const imported = await importBench(async () => (await import(file)).default)
  // #endregion
  return { bench, imported }
}

export async function refusals(bench: TestBench) {
  // #region decline
  const declined = await bench.tool('book', {}).run({ seat: decline })
  // #endregion
  // #region cancel
  const cancelled = await bench.tool('book', {}).run({ seat: cancel })
  // #endregion
  return [declined, cancelled]
}

export function contracts(harness: StoreHarness, engine: EngineHarness) {
  // #region storeContract
  describe('my store', () => {
    for (const { name, run } of storeContract(harness)) it(name, run)
  })
  // #endregion
  // #region storeControls
  describe('the contract of my store', () => {
    for (const { name, run } of storeControls(harness)) it(name, run)
  })
  // #endregion
  // #region fleetContract
  describe('my store in a fleet', () => {
    for (const { name, run } of fleetContract(harness)) it(name, run)
  })
  // #endregion
  // #region fleetControls
  describe('the contract of my store in a fleet', () => {
    for (const { name, run } of fleetControls(harness)) it(name, run)
  })
  // #endregion
  // #region approvalContract
  describe('approvals in my store', () => {
    for (const { name, run } of approvalContract(harness)) it(name, run)
  })
  // #endregion
  // #region approvalControls
  describe('the contract of approvals in my store', () => {
    for (const { name, run } of approvalControls(harness)) it(name, run)
  })
  // #endregion
  // #region operatorContract
  describe('operators of my store', () => {
    for (const { name, run } of operatorContract(harness)) it(name, run)
  })
  // #endregion
  // #region operatorControls
  describe('the contract of operators of my store', () => {
    for (const { name, run } of operatorControls(harness)) it(name, run)
  })
  // #endregion
  // #region alarmContract
  describe('alarms of my store', () => {
    for (const { name, run } of alarmContract(harness)) it(name, run)
  })
  // #endregion
  // #region alarmControls
  describe('the contract of alarms of my store', () => {
    for (const { name, run } of alarmControls(harness)) it(name, run)
  })
  // #endregion
  // #region permitContract
  describe('permits of my store', () => {
    for (const { name, run } of permitContract(harness)) it(name, run)
  })
  // #endregion
  // #region permitControls
  describe('the contract of permits of my store', () => {
    for (const { name, run } of permitControls(harness)) it(name, run)
  })
  // #endregion
  // #region engineContract
  describe('my engine', () => {
    for (const { name, run } of engineContract(engine)) it(name, run)
  })
  // #endregion
  // #region engineControls
  describe('the contract of my engine', () => {
    for (const { name, run } of engineControls(engine)) it(name, run)
  })
  // #endregion
}

export function passOn(): never {
  // #region JsonRpcError
  throw new JsonRpcError(-32050, 'The quota of this month is used up', { resetsOn: '2026-12-01' })
  // #endregion
}

export function restate() {
  // #region createRestateStore
  const store = createRestateStore({
    ingress: ['http://restate-1:8080'],
    admin: 'http://restate-1:9070',
    endpoint: { host: '0.0.0.0', port: 9080, url: 'http://workers:9080', identityKeys: ['publickeyv1_…'] },
  })
  const server = createServer({ name: 'tables', version: '1.0.0', store })
  // #endregion
  return server
}

declare const directory: { members(group: string): string[] }
declare const publicKey: string
declare const entries: Parameters<typeof verifyRecord>[0]

export async function approvals(server: Server, token: string, signingSecret: string) {
  // #region createApprovals
  const approvals = createApprovals({
    url: 'https://tools.example/approvals',
    login: oidc({ issuer: 'https://login.example', clientId: 'approvals' }),
    groups: (name) => directory.members(name),
  })
  server.use(approvals)
  // #endregion
  // #region oidc
  const login = oidc({
    issuer: 'https://login.example',
    clientId: 'approvals',
    clientSecret: process.env.CLIENT_SECRET,
  })
  // #endregion
  // #region webhook
  const post = webhook({
    url: 'https://chat.example/hooks/approvals',
    secret: process.env.WEBHOOK_SECRET ?? '',
  })
  // #endregion
  // #region email
  const mail = email({ transport: 'smtps://approvals:secret@mail.example', from: 'approvals@example.com' })
  // #endregion
  // #region slack
  const chat = slack({ token, signingSecret, channel: 'C0123456789' })
  // #endregion
  // #region verifyRecord
  const { problems } = await verifyRecord(entries, { tenant: 'tools', keys: { '2026-07': publicKey } })
  // #endregion
  return { login, post, mail, chat, problems }
}
