import { describe, expect, it } from 'vitest'
import type { FlowHost } from '../carry/host.ts'
import type { InitializeCall, Listing } from '../protocol/call.ts'
import { createCodecs } from '../protocol/revisions.ts'
import type { Registry } from '../tool/registry.ts'
import { factsOf, type GreetOptions, greet, readInitialize } from './handshake.ts'
import type { Older } from './older.ts'

const VERSION = '2025-11-25'
const codecs = createCodecs()
const older = { codecs } as Older
const message = (method: string, params: unknown, id?: number) => ({ jsonrpc: '2.0', id, method, params })
const CLIENT = { name: 'c', version: '1' }
const PARAMS = { protocolVersion: VERSION, capabilities: {}, clientInfo: CLIENT }

describe('initialize', () => {
  it('names the version, the capabilities and the client', () => {
    const call = readInitialize(older, message('initialize', PARAMS, 1))
    expect(call).toMatchObject({ kind: 'initialize', id: 1, requested: VERSION, clientInfo: CLIENT })
  })

  it.each<[string, unknown]>([
    ['a notification', message('initialize', PARAMS)],
    ['another request of a session', message('ping', {}, 1)],
    ['a call', message('tools/list', {}, 1)],
  ])('is not %s', (_, given) => {
    expect(() => readInitialize(older, given)).toThrow(expect.objectContaining({ code: 'PEER_REQUEST' }))
  })

  it('is refused with the reason if it is not well-formed', () => {
    const given = message('initialize', { ...PARAMS, capabilities: 7 }, 1)
    expect(() => readInitialize(older, given)).toThrow(expect.objectContaining({ code: 'PEER_PARAMS' }))
  })
})

describe('R9 what a session keeps of initialize', () => {
  const declared = (text: string) => ({
    elicitation: {},
    experimental: { turns: {}, other: {} },
    extra: { text },
  })
  const room = 2_048 - JSON.stringify(declared('')).length
  const call = (capabilities: object, clientInfo?: object) =>
    ({ kind: 'initialize', id: 1, requested: VERSION, capabilities, clientInfo }) as unknown as InitializeCall

  it('is all that is declared, up to 2048 characters', () => {
    const small = declared('x'.repeat(room))
    expect(factsOf(older, call(small), VERSION)).toEqual({
      protocolVersion: VERSION,
      capabilities: small,
      clientInfo: undefined,
    })
  })

  it('is what decides about questions, if more is declared', () => {
    const large = declared('x'.repeat(room + 1))
    expect(factsOf(older, call(large), VERSION).capabilities).toEqual({ elicitation: {}, experimental: {} })
    const withDraft = { codecs, draft: { experimental: ['turns'] } } as unknown as Older
    const { capabilities } = factsOf(withDraft, call(large), VERSION)
    expect(capabilities).toEqual({ elicitation: {}, experimental: { turns: {} } })
  })

  it('is the beginning of a long name', () => {
    const { clientInfo } = factsOf(older, call({}, { name: 'n'.repeat(129), version: '1' }), VERSION)
    expect(clientInfo).toEqual({ name: 'n'.repeat(128), version: '1' })
  })
})

describe('the greeting', () => {
  interface Setup {
    readonly rows?: Partial<Record<Listing, readonly Record<string, unknown>[]>>
    readonly host?: Partial<FlowHost>
    readonly version?: string
    readonly instructions?: () => string
  }
  const session = { session: true, known: true, tasks: true }
  function greeting({ rows = {}, host = {}, version = VERSION, instructions }: Setup, given = session) {
    const registry = { rows: (listing: Listing) => rows[listing] ?? [] } as unknown as Registry
    const serverInfo = { name: 's', version: '1' }
    const options: GreetOptions = { host: host as FlowHost, registry, serverInfo, instructions, codecs }
    return JSON.parse(JSON.stringify(greet(options, version, given)))
  }
  const capabilities = (setup: Setup, given = session) => greeting(setup, given).capabilities
  const ROW = [{ name: 'one' }]
  const TASKS = { tasks: {} as never }

  it('names the version, the server and its instructions', () => {
    const serverInfo = { name: 's', version: '1' }
    expect(greeting({})).toEqual({ protocolVersion: VERSION, capabilities: { logging: {} }, serverInfo })
    expect(greeting({ instructions: () => 'Be kind' }).instructions).toBe('Be kind')
  })

  it.each<[Listing, object]>([
    ['tools', { tools: { listChanged: true } }],
    ['prompts', { prompts: { listChanged: true }, completions: {} }],
    ['resources', { resources: { listChanged: true, subscribe: true } }],
    ['templates', { resources: { listChanged: true, subscribe: true }, completions: {} }],
  ])('declares what there is: %s', (listing, expected) => {
    expect(capabilities({ rows: { [listing]: ROW } })).toEqual({ logging: {}, ...expected })
  })

  it('declares everything where callers have lists of their own', () => {
    const declared = capabilities({ host: { rowsFor: (async () => []) as never } })
    expect(Object.keys(declared).sort()).toEqual(['completions', 'logging', 'prompts', 'resources', 'tools'])
  })

  it('declares prompts and resources beside each other', () => {
    const declared = capabilities({ rows: { prompts: ROW, templates: ROW, resources: ROW } })
    expect(Object.keys(declared).sort()).toEqual(['completions', 'logging', 'prompts', 'resources'])
  })

  it('promises no notifications without a session', () => {
    const rows = { tools: ROW, prompts: ROW, resources: ROW }
    const alone = { session: false, known: true, tasks: true }
    expect(capabilities({ rows }, alone)).toMatchObject({ tools: {}, prompts: {}, resources: {} })
    expect(JSON.stringify(capabilities({ rows }, alone))).not.toMatch(/listChanged|subscribe/)
  })

  it('declares tasks where they are served, and their list to a caller who can be told apart', () => {
    const tasks = { list: {}, cancel: {}, requests: { tools: { call: {} } } }
    expect(capabilities({ host: TASKS }).tasks).toEqual(tasks)
    expect(capabilities({ host: TASKS }, { ...session, known: false }).tasks).toEqual({
      ...tasks,
      list: undefined,
    })
    expect(capabilities({ host: TASKS }, { ...session, tasks: false }).tasks).toBeUndefined()
    expect(capabilities({ host: TASKS, version: '2025-06-18' }).tasks).toBeUndefined()
    expect(capabilities({}).tasks).toBeUndefined()
  })

  it('declares that apps of the server draw forms', () => {
    const app = [{ name: 'app', uri: 'ui://app/form' }]
    expect(capabilities({ rows: { resources: app } }).extensions).toBeDefined()
  })
})
