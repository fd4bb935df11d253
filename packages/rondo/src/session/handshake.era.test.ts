import { describe, expect, it } from 'vitest'
import { createOlderTest } from './handshake.ts'

const modern = ['2026-07-28']
const older = ['2025-11-25', '2025-03-26', 'DRAFT-2026-v1']
const drafts = ['DRAFT-2026-v1']
const isOlder = createOlderTest({ modern, older, drafts, unnamed: false })
const isOlderStateless = createOlderTest({ modern, older, drafts, unnamed: true })

const claiming = (version: unknown, method = 'tools/list') => ({
  method,
  params: { _meta: { 'io.modelcontextprotocol/protocolVersion': version } },
})
const plain = { method: 'tools/list', params: {} }
const initialize = { method: 'initialize', params: { protocolVersion: '2025-11-25' } }
const headers = (version?: string, session?: string) => ({
  'mcp-protocol-version': version,
  'mcp-session-id': session,
})

describe('the era of a message', () => {
  it.each<[string, unknown, ReturnType<typeof headers>, boolean]>([
    ['a claim', claiming('2026-07-28'), headers('2026-07-28'), false],
    ['a claim without a header', claiming('2026-07-28'), headers(), false],
    ['a claim within a session', claiming('2026-07-28'), headers('2025-11-25', 's'), false],
    ['a claim of nonsense', claiming('v999'), headers('v999'), false],
    ['a claim that is not a string', claiming(7), headers(), false],
    ['a claim of the draft', claiming('DRAFT-2026-v1'), headers(), true],
    ['a claim of the draft with a new header', claiming('DRAFT-2026-v1'), headers('2026-07-28'), false],
    ['a new header without a claim', plain, headers('2026-07-28'), false],
    ['initialize with a new header', initialize, headers('2026-07-28'), false],
    ['initialize with a claim', claiming('2026-07-28', 'initialize'), headers(), false],
    ['initialize', initialize, headers(), true],
    ['initialize with an older header', initialize, headers('2025-11-25'), true],
    ['an older header', plain, headers('2025-03-26'), true],
    ['the header of the draft', plain, headers('DRAFT-2026-v1'), true],
    ['an unknown header', plain, headers('v999', 's'), false],
    ['a session', plain, headers(undefined, 's'), true],
    ['a session and a batch', [plain], headers(undefined, 's'), true],
    ['a response within a session', { id: 1, result: {} }, headers(undefined, 's'), true],
    ['no version and no session', plain, headers(), false],
    ['no version and no session, and a batch', [plain], headers(), false],
    ['a body that is not a message', 7, headers(), false],
  ])('F1 is recognized with %s', (_, message, given, expected) => {
    expect(isOlder(message, given)).toBe(expected)
  })

  it('F1 is the earlier one if sessions are off and the message names no version', () => {
    expect(isOlderStateless(plain, headers())).toBe(true)
    expect(isOlderStateless(plain, headers('2026-07-28'))).toBe(false)
    expect(isOlderStateless(claiming('2026-07-28'), headers())).toBe(false)
  })

  it('F1 is recognized without headers, over stdio', () => {
    expect([isOlder(initialize, undefined), isOlder(plain, undefined)]).toEqual([true, false])
  })

  it('is never the draft if the draft is closed', () => {
    const closed = createOlderTest({ modern, older: ['2025-11-25'], drafts: [], unnamed: false })
    expect(closed(claiming('DRAFT-2026-v1'), headers())).toBe(false)
    expect(closed(plain, headers('DRAFT-2026-v1'))).toBe(false)
  })
})
