import { describe, expect, it } from 'vitest'
import { parseTarget, sayTarget, takeTarget } from './words.ts'

const cwd = process.cwd()

describe('the name of a server', () => {
  it.each([
    ['http://127.0.0.1:1/mcp', { kind: 'url', url: 'http://127.0.0.1:1/mcp' }],
    ['HTTPS://example.org', { kind: 'url', url: 'HTTPS://example.org' }],
    ['packages/cli/src/words.ts', { kind: 'file', path: `${cwd}/packages/cli/src/words.ts` }],
    ['node server.js', { kind: 'command', command: 'node', args: ['server.js'], cwd }],
    ['my-server', { kind: 'command', command: 'my-server', args: [], cwd }],
  ])('%s is read as %j', (word, target) => {
    expect(takeTarget([word, 'rest'], undefined, cwd)).toEqual({ target, words: ['rest'] })
  })

  it('may be everything after "--"', () => {
    const taken = takeTarget(['tool', 'a=1'], ['npx', 'x', '--json'], cwd)
    expect(taken.target).toEqual({ kind: 'command', command: 'npx', args: ['x', '--json'], cwd })
    expect(taken.words).toEqual(['tool', 'a=1'])
  })

  it.each([
    [[], undefined, /Name a server/],
    [['x'], [], /No command/],
    [['http://'], undefined, /Invalid URL/],
    [['http://ada:pw@example.org/'], undefined, /--header/],
    [['ftp://example.org'], undefined, /https, not ftp/],
    [['./nowhere.ts'], undefined, /No such file/],
    [['127.0.0.1:3000/mcp'], undefined, /begins with http.*: http:\/\/127\.0\.0\.1:3000\/mcp/],
    [[''], undefined, /empty/],
  ])('%j %j is refused', (words, rest, sentence) => {
    expect(() => takeTarget(words, rest, cwd)).toThrow(sentence)
  })

  it('is read back after it was stored', () => {
    for (const words of [['http://127.0.0.1:1/mcp'], ['packages/cli/src/cli.ts'], ['node "a b"']]) {
      const { target } = takeTarget(words, undefined, cwd)
      expect(parseTarget(JSON.parse(JSON.stringify(target)))).toEqual(target)
      expect(sayTarget(target)).not.toBe('')
    }
    for (const value of [
      undefined,
      5,
      {},
      { kind: 'url' },
      { kind: 'command', command: 'x', args: [1], cwd },
    ]) {
      expect(parseTarget(value)).toBeUndefined()
    }
  })
})
