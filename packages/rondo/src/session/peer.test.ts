import { describe, expect, it } from 'vitest'
import { settle } from '../../../../test/support/session-instances.ts'
import {
  ADA,
  call,
  type ServiceSetup,
  startService,
  VERSION,
} from '../../../../test/support/session-service.ts'
import { DRAFT_2026_V1 } from '../drafts/draft-2026-v1/codec.ts'
import { CODECS, createCodecs } from '../protocol/revisions.ts'
import { principalTag } from '../seal/state.ts'
import type { Load } from '../serve/port.ts'
import { SessionPeer } from './peer.ts'
import type { Session } from './session.ts'

const DRAFT = 'DRAFT-2026-v1'
const ROOTS = { q: { method: 'roots/list', params: {} } } as const

function start(setup: ServiceSetup = {}) {
  const service = startService(setup)
  const lines: unknown[] = []
  const output = { write: (json: string) => void lines.push(JSON.parse(json)), clogged: false }
  const { older, inFlight } = service.first
  const { state, errors } = service
  const sessions: Session[] = []
  const { open } = older.sessions
  older.sessions.open = (...args) => {
    const session = open(...args)
    sessions.push(session)
    return session
  }
  const onError = (error: unknown): void => void errors.push(error)
  const peer = new SessionPeer({ output, principal: ADA, inFlight, service: { state }, older, onError })
  const greet = (version = VERSION): void => {
    const params = {
      protocolVersion: version,
      capabilities: { roots: {} },
      clientInfo: { name: 'c', version: '1' },
    }
    peer.receive(call(0, 'initialize', params))
    lines.length = 0
  }
  return { ...service, peer, lines, output, greet, sessions, table: service.first.table }
}

const claiming = (version: string) => ({
  name: 'a',
  arguments: {},
  _meta: { 'io.modelcontextprotocol/protocolVersion': version },
})
const asking: ServiceSetup['answer'] = async ({ line }) => {
  const asked = await line.ask(ROOTS, { timeoutMs: 1_000 })
  return asked.kind === 'refused' ? { kind: 'error', error: asked.error } : (undefined as never)
}

describe('the session of a client over stdio', () => {
  it('F1 begins with initialize, after which every message belongs to it', () => {
    const { peer, lines, greet, table } = start()
    const initialize = call(0, 'initialize', { protocolVersion: VERSION })
    expect([peer.takes(call(1)), peer.takes(initialize)]).toEqual([false, true])
    const params = {
      protocolVersion: '1999-01-01',
      capabilities: {},
      clientInfo: { name: 'c', version: '1' },
    }
    peer.receive(call(0, 'initialize', params))
    const result = { protocolVersion: VERSION, session: true, known: true, tasks: true }
    expect(lines).toEqual([{ jsonrpc: '2.0', id: 0, result }])
    expect([peer.takes(call(1)), peer.takes([call(1)])]).toEqual([true, true])
    greet()
    expect(table.size).toBe(1)
    peer.end()
    expect([table.size, peer.takes(call(1))]).toEqual([0, false])
    expect(() => peer.end()).not.toThrow()
  })

  it('is not that of a message of a newer version, but of one of a draft', () => {
    const { peer, greet } = start()
    greet()
    expect(peer.takes(call(1, 'tools/call', claiming('2026-07-28')))).toBe(false)
    expect(peer.takes(call(1, 'tools/call', claiming(DRAFT)))).toBe(true)
    const draftVersions = ['another', DRAFT]
    const two = start({ older: { codecs: { ...createCodecs([...CODECS, DRAFT_2026_V1]), draftVersions } } })
    expect(two.peer.takes(call(1, 'tools/call', claiming(DRAFT)))).toBe(true)
  })

  it('is the caller’s, and stays while something is sent', async () => {
    const { peer, served, greet, sessions, clock, table } = start()
    greet('2025-06-18')
    clock.now += 20 * 60_000
    peer.receive(call(1))
    await settle()
    expect(served[0]).toMatchObject({
      principal: ADA,
      unaskable: undefined,
      call: {
        protocolVersion: '2025-06-18',
        capabilities: { roots: {} },
        clientInfo: { name: 'c', version: '1' },
      },
    })
    clock.now += 20 * 60_000
    table.sweep()
    expect(table.size).toBe(1)
    expect(sessions[0]?.owner).toBe(principalTag(ADA))
  })

  it('gets one message for each request, or one for a batch', async () => {
    const { peer, lines, greet } = start()
    greet('2025-03-26')
    peer.receive(call(1))
    peer.receive({ jsonrpc: '2.0', method: 'notifications/initialized' })
    await settle()
    expect(lines).toMatchObject([{ id: 1, result: {} }])
    lines.length = 0
    peer.receive([call(2), { jsonrpc: '2.0', method: 'notifications/initialized' }, call(3, 'ping', {})])
    await settle()
    expect(lines).toHaveLength(1)
    expect((lines[0] as { id: number }[]).map(({ id }) => id).sort()).toEqual([2, 3])
  })

  it('gets no response to a call that it cancelled', async () => {
    const pending: (() => void)[] = []
    const { peer, lines, greet } = start({
      async answer({ call }) {
        if (call.id !== 9) await new Promise<void>((resolve) => pending.push(resolve))
        return { kind: 'complete', result: {} } as never
      },
    })
    greet('2025-03-26')
    const cancel = (requestId: number) =>
      peer.receive({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } })
    peer.receive(call(1))
    peer.receive([call(2), call(9)])
    peer.receive([call(3)])
    await settle()
    for (const id of [1, 2, 3]) cancel(id)
    for (const finish of pending) finish()
    await settle()
    expect(lines).toMatchObject([[{ id: 9 }]])
  })

  it('T20 gets what must not be missed', async () => {
    const { peer, output, lines, greet } = start({
      answer: ({ line }) => {
        line.notify('notifications/message', { data: output.clogged })
        return { kind: 'complete', result: {} } as never
      },
    })
    greet()
    output.clogged = true
    peer.receive(call(1))
    await settle()
    expect(lines).toMatchObject([{ id: 1 }])
    output.clogged = false
    peer.receive(call(2))
    await settle()
    expect(lines.slice(1)).toMatchObject([{ method: 'notifications/message' }, { id: 2 }])
  })

  it('is asked on its output, even if that is full', async () => {
    const { peer, output, lines, greet } = start({ answer: asking })
    greet()
    output.clogged = true
    peer.receive(call(1))
    await settle()
    expect(lines).toMatchObject([{ method: 'roots/list' }])
    peer.receive({ jsonrpc: '2.0', id: (lines[0] as { id: unknown }).id, result: {} })
    await settle()
    expect(lines.at(-1)).toMatchObject({ id: 1, result: {} })
  })

  it('is notified of changes', () => {
    const { lines, greet, sessions } = start()
    greet()
    sessions[0]?.notify({ kind: 'tools' })
    expect(lines).toMatchObject([{ method: 'notifications/tools/list_changed' }])
  })

  it('is refused while the server stops', async () => {
    const { peer, lines, greet, state } = start({ answer: asking })
    peer.refuseWaiting()
    greet()
    peer.receive(call(1))
    await settle()
    peer.refuseWaiting()
    await settle()
    expect(lines.at(-1)).toMatchObject({ id: 1, error: { code: -32000 } })
    state.draining = true
    peer.receive(call(2))
    expect(lines.at(-1)).toMatchObject({ id: 2, error: { code: -32000 } })
    const params = { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'c', version: '1' } }
    peer.receive(call(3, 'initialize', params))
    expect(lines.at(-1)).toMatchObject({ id: 3, error: { code: -32000 } })
  })

  it('R11 gets an error for what cannot be served', () => {
    const { peer, lines, greet, errors, first } = start()
    greet()
    peer.receive([call(1)])
    expect(lines.at(-1)).toMatchObject({ id: null, error: { code: -32600 } })
    peer.receive(call(2, 'tools/call', { name: 7 }))
    expect(lines.at(-1)).toMatchObject({ id: 2, error: { code: -32602 } })
    peer.receive({ jsonrpc: '2.0', id: 3, method: 'initialize', params: {} })
    expect(lines.at(-1)).toMatchObject({ id: 3, error: { code: -32602 } })
    expect(errors).toEqual([])
    const fault = new Error('broken')
    first.older.sessions.open = () => {
      throw fault
    }
    const params = { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'c', version: '1' } }
    peer.receive(call(4, 'initialize', params))
    expect(lines.at(-1)).toMatchObject({ id: 4, error: { code: -32603 } })
    expect(errors).toEqual([fault])
  })

  it('N2 holds the weight of a message until it is served', async () => {
    const { peer, greet } = start()
    greet()
    let held = 0
    const hold = () => {
      held += 1
      return () => {
        held -= 1
      }
    }
    peer.receive(call(1, 'tools/list', {}), { hold } as unknown as Load)
    expect(held).toBe(1)
    await settle()
    expect(held).toBe(0)
  })
})

describe('a message of a draft without a session', () => {
  it('is served alone, in its version', async () => {
    const { peer, lines, served, table } = start()
    peer.receive(call(1, 'tools/call', claiming(DRAFT)))
    await settle()
    expect(lines).toMatchObject([{ id: 1, result: {} }])
    expect(served[0]?.call).toMatchObject({ protocolVersion: DRAFT, capabilities: {} })
    expect(table.size).toBe(0)
    peer.receive(call(2, 'tasks/list', claiming(DRAFT)))
    await settle()
    expect(served[1]).toMatchObject({ principal: ADA, call: { kind: 'tasks' } })
    peer.receive(call(3))
    await settle()
    expect(lines.at(-1)).toMatchObject({ id: 3 })
    expect(served[2]?.call).toMatchObject({ protocolVersion: '', capabilities: {} })
  })
})
