/** The command's output about itself, and small things that it prints everywhere. */

import { readFileSync } from 'node:fs'
import { RondoError } from 'rondo'
import { describe, expect, it } from 'vitest'
import { isSource } from './command/play.ts'
import { CommandError, exitOf, readLine } from './command-line.ts'
import { helpOf, helpOn } from './help.ts'
import { drawBar, formatTable, sayAge } from './io.ts'
import { COMMANDS } from './main.ts'

describe('docs/reference/cli.md', () => {
  it('has a section for every command, and no other', () => {
    const marks = readFileSync('docs/reference/cli.md', 'utf8').matchAll(/^<!-- command (\w+) -->$/gm)
    expect(Array.from(marks, ([, name]) => name)).toEqual(COMMANDS.map(({ name }) => name))
  })
})

describe('the help', () => {
  it('names variables and files, and explains the code in backticks without them', () => {
    const text = helpOf(COMMANDS)
    expect(text).toMatch(/^ {2}RONDO_HOME +the folder for the files; rondo in XDG_DATA_HOME/m)
    expect(text).toMatch(/^ {2}dpop-key +the key to which tokens are bound, with "rondo login --dpop"$/m)
  })

  it.each(COMMANDS.map((command) => [command.name, command] as const))(
    'on %s fits a terminal',
    (_name, command) => {
      const lines = helpOn(command).split('\n')
      expect(lines.filter((line) => line.length > 120)).toEqual([])
      expect(lines[0]).toContain(`rondo ${command.name}`)
    },
  )
})

describe('a command line', () => {
  const table = {
    flag: { type: 'boolean', help: '' },
    text: { type: 'string', help: '' },
    many: { type: 'string', multiple: true, help: '' },
  } as const

  it('is parsed by the table of its options', () => {
    const { words, rest, options } = readLine(
      ['a', '--many', '1', 'b=-2', '--flag', '--many=3', '--', '--x'],
      table,
    )
    expect(words).toEqual(['a', 'b=-2'])
    expect(rest).toEqual(['--x'])
    expect([options.flag('flag'), options.list('many'), options.text('text')]).toEqual([
      true,
      ['1', '3'],
      undefined,
    ])
  })

  it('may contain task ids, even if they begin with a dash', () => {
    const ids = ['-Xc2Jt5mBq0yZ8vQnRr1LwA', '--c2Jt5mBq0yZ8vQnRr1LwA']
    const { words, options } = readLine(['get', ...ids, '--text', ids[0] ?? '', '--flag'], table)
    expect([words, options.text('text'), options.flag('flag')]).toEqual([['get', ...ids], ids[0], true])
  })

  it('is refused with a sentence that names the mistake', () => {
    expect(() => readLine(['--nope'], table)).toThrow(/^Unknown option '--nope'. --help lists the options$/)
    expect(() => readLine(['--txt', 'x'], table)).toThrow(/^Unknown option '--txt'. Did you mean "--text"\?$/)
    expect(() => readLine(['--text'], table)).toThrow(/text/)
    expect(() => readLine(['--text', 'x'], table).options.number('text')).toThrow(/number of at least 0/)
  })
})

describe('a thrown value', () => {
  it.each([
    [new CommandError('stored', 'x'), 'stored'],
    [new RondoError('PEER_UNREACHABLE'), 'unreachable'],
    [new RondoError('LIMIT_CLIENT_TIMEOUT'), 'unreachable'],
    [new RondoError('LIMIT_CLIENT_ROUNDS'), 'refused'],
    [new RondoError('PEER_LINK'), 'refused'],
    [new RondoError('INPUT_PENDING'), 'stored'],
    [new RondoError('PEER_ERROR'), 'server'],
    [new TypeError('x'), 'fault'],
    ['x', 'fault'],
  ])('%s exits with %s', (error, exit) => expect(exitOf(error)).toBe(exit))
})

describe('formatting', () => {
  it('ages have one unit', () => {
    expect([0, -5, 61_000, 7_300_000, 3 * 86_400_000].map(sayAge)).toEqual([
      'now',
      'now',
      '1 min',
      '2 h',
      '3 d',
    ])
  })

  it('bars show the share of the total', () => {
    expect(drawBar(1, 2)).toBe(`${'█'.repeat(12)}${'░'.repeat(12)} 1/2`)
    expect(drawBar(9, 2)).toContain('█'.repeat(24))
  })

  it('tables have aligned columns, cut to the width', () => {
    expect(
      formatTable([
        ['a', 'b', 'c'],
        ['aa', '', 'ccc'],
      ]),
    ).toBe('a   b  c\naa     ccc')
    expect(formatTable([['a', 'b'.repeat(20)]], 10)).toBe('a  bbbbbb…')
    expect(formatTable([])).toBe('')
  })

  it('source files are told apart from other files', () => {
    const names = [
      'a.ts',
      'lib/b.mjs',
      'c.json',
      'node_modules/x/y.js',
      '.git/z.js',
      'd.md',
      'e',
      'a.test.ts',
    ]
    expect(names.filter(isSource)).toEqual(['a.ts', 'lib/b.mjs', 'c.json'])
  })
})
