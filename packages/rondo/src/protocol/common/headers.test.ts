import { describe, expect, it } from 'vitest'
import { callTool, request, VERSION } from '../../../../../test/support/echo-service.ts'
import { decode } from '../rev-2026-07-28/decode.ts'

const dialect = {
  supportedVersions: [VERSION],
  paramHeaders: (tool: string) =>
    tool === 'region'
      ? [
          { header: 'Region', path: ['region'] },
          { header: 'Count', path: ['deep', 'count'] },
        ]
      : [],
}

type Changes = Record<string, string | undefined>

/** `ok`, or the code of the refusal. */
function outcome(sent: ReturnType<typeof request>, changes: Changes): string {
  const headers: Changes = { ...sent.headers, ...changes }
  const decoded = decode(sent.message, headers, dialect)
  return decoded.kind === 'refused' ? decoded.error.code : 'ok'
}

const base64 = (text: string) => `=?base64?${Buffer.from(text).toString('base64')}?=`

describe('T13 standard headers against the body', () => {
  const tool = callTool('get weather', { a: 1 })

  it.each<[string, Changes, string]>([
    ['all as they should be', {}, 'ok'],
    ['another version', { 'mcp-protocol-version': '2025-11-25' }, 'PEER_HEADER'],
    ['no version', { 'mcp-protocol-version': undefined }, 'PEER_HEADER'],
    ['a version with blanks around', { 'mcp-protocol-version': ` ${VERSION}\t` }, 'ok'],
    ['no method', { 'mcp-method': undefined }, 'PEER_HEADER'],
    ['another method', { 'mcp-method': 'prompts/get' }, 'PEER_HEADER'],
    ['the method in capitals', { 'mcp-method': 'TOOLS/CALL' }, 'PEER_HEADER'],
    ['the method with blanks around', { 'mcp-method': '  tools/call ' }, 'ok'],
    ['no name', { 'mcp-name': undefined }, 'PEER_HEADER'],
    ['another name', { 'mcp-name': 'get_weather' }, 'PEER_HEADER'],
    ['an empty name', { 'mcp-name': '' }, 'PEER_HEADER'],
    ['the name twice', { 'mcp-name': 'get weather, get weather' }, 'PEER_HEADER'],
    ['the name with blanks around', { 'mcp-name': '  get weather\t ' }, 'ok'],
    ['the name in base64', { 'mcp-name': base64('get weather') }, 'ok'],
    ['another name in base64', { 'mcp-name': base64('get rain') }, 'PEER_HEADER'],
    ['base64 without padding', { 'mcp-name': base64('get weather').replace('=?=', '?=') }, 'PEER_HEADER'],
    ['base64 with a foreign character', { 'mcp-name': '=?base64?Z2V0!Hdl?=' }, 'PEER_HEADER'],
  ])('%s', (_, changes, expected) => {
    expect(outcome(tool, changes)).toBe(expected)
  })

  it('refuses a name with characters that no header may contain, even if it equals the body', () => {
    const sent = callTool('caf\u00e9')
    expect(outcome(sent, { 'mcp-name': 'caf\u00e9' })).toBe('PEER_HEADER')
    expect(outcome(sent, { 'mcp-name': base64('caf\u00e9') })).toBe('ok')
  })

  it('compares the URI of a resource', () => {
    const sent = request('resources/read', { uri: 'test://a%20b' })
    expect(outcome(sent, {})).toBe('ok')
    expect(outcome(sent, { 'mcp-name': 'test://a b' })).toBe('PEER_HEADER')
    expect(outcome(sent, { 'mcp-name': undefined })).toBe('PEER_HEADER')
  })

  it('requires no name if the method has none', () => {
    expect(outcome(request('tools/list'), {})).toBe('ok')
  })

  it('reports a wrong header before an unsupported version', () => {
    const sent = request('tools/list', { _meta: { 'io.modelcontextprotocol/protocolVersion': 'v9' } })
    expect(outcome(sent, {})).toBe('PEER_HEADER')
    expect(outcome(sent, { 'mcp-protocol-version': 'v9' })).toBe('PEER_VERSION')
  })

  it('checks no headers outside HTTP', () => {
    expect(decode(tool.message, undefined, dialect).kind).toBe('call')
  })

  it('accepts a notification without headers, but not with a wrong one', () => {
    const note = { message: { jsonrpc: '2.0', method: 'notifications/x' }, headers: {} }
    expect(outcome(note, {})).toBe('ok')
    expect(outcome(note, { 'mcp-method': 'notifications/y' })).toBe('PEER_HEADER')
  })
})

describe('T13 mirrored arguments against the body', () => {
  it.each<[string, unknown, string | undefined, string]>([
    ['equal', 'eu', 'eu', 'ok'],
    ['equal but for blanks around', 'eu', ' eu ', 'ok'],
    ['in base64', 'Hello', '=?base64?SGVsbG8=?=', 'ok'],
    ['in base64 without padding', 'Hello', '=?base64?SGVsbG8?=', 'PEER_HEADER'],
    ['in base64 with foreign characters', 'Hello', '=?base64?SGVs!!!bG8=?=', 'PEER_HEADER'],
    ['literal without the prefix', 'SGVsbG8=', 'SGVsbG8=', 'ok'],
    ['literal without the suffix', '=?base64?SGVsbG8=', '=?base64?SGVsbG8=', 'ok'],
    ['bytes that are not UTF-8', '\ufffd', '=?base64?/w==?=', 'PEER_HEADER'],
    ['missing', 'eu', undefined, 'PEER_HEADER'],
    ['different', 'eu', 'us', 'PEER_HEADER'],
    ['in another case', 'eu', 'EU', 'PEER_HEADER'],
    ['empty', '', '', 'ok'],
    ['a boolean', true, 'true', 'ok'],
    ['another boolean', false, 'true', 'PEER_HEADER'],
    ['a boolean in capitals', true, 'True', 'PEER_HEADER'],
    ['an integer', 42, '42', 'ok'],
    ['the same integer', 42, '42.0', 'ok'],
    ['another integer', 42, '43', 'PEER_HEADER'],
    ['an integer in another base', 42, '0x2a', 'PEER_HEADER'],
    ['integers past the safe range', 2 ** 53, '9007199254740993', 'PEER_HEADER'],
    ['null without a header', null, undefined, 'ok'],
    ['null with a header', null, 'eu', 'PEER_HEADER'],
    ['absent without a header', undefined, undefined, 'ok'],
    ['absent with a header', undefined, 'eu', 'PEER_HEADER'],
  ])('%s', (_, region, header, expected) => {
    const sent = callTool('region', region === undefined ? {} : { region })
    expect(outcome(sent, { 'mcp-param-region': header })).toBe(expected)
  })

  it('finds a nested argument', () => {
    const sent = callTool('region', { deep: { count: 3 } })
    expect(outcome(sent, { 'mcp-param-count': '3' })).toBe('ok')
    expect(outcome(sent, { 'mcp-param-count': '4' })).toBe('PEER_HEADER')
    expect(outcome(sent, {})).toBe('PEER_HEADER')
  })

  it('does not mistake an inherited property for an argument', () => {
    const inherits = {
      ...dialect,
      paramHeaders: () => [{ header: 'X', path: ['deep', 'toString', 'name'] }],
    }
    const { message, headers } = callTool('region', { deep: {} })
    expect(decode(message, headers, inherits).kind).toBe('call')
  })

  it('ignores headers of other tools', () => {
    expect(outcome(callTool('echo', { region: 'eu' }), { 'mcp-param-region': 'us' })).toBe('ok')
  })
})
