/** Keeps the documentation true. Each check is shown to report a wrong page. */

import { describe, expect, it } from 'vitest'
import { COMMANDS } from '../packages/cli/src/main.ts'
import { ERRORS } from '../packages/rondo/src/errors.ts'
import { definedOptions, defineOptions, flag, number, text } from '../packages/rondo/src/options.ts'
import '../packages/rondo/src/client-oauth.ts'
import '../packages/rondo/src/client.ts'
import '../packages/rondo/src/index.ts'
import '../packages/rondo/src/oauth.ts'
import '../packages/rondo/src/otel.ts'
import '../packages/rondo/src/postgres.ts'
import '../packages/rondo/src/sdk.ts'
import '../packages/rondo/src/sqlite.ts'
import '../packages/restate/src/store.ts'
import { ERRORS_SOURCE, fillReference, readMemberDocs } from '../scripts/reference.ts'
import {
  checkCommands,
  checkDefaults,
  checkExamples,
  checkLinks,
  checkMachine,
  checkOptions,
  checkPublicOptions,
  checkThreats,
  compareNames,
  packedFiles,
  readInterface,
  readOptionTables,
  readQuantity,
} from './support/check-docs.ts'
import { checkAnchors, checkBudgets, checkRepeats, userPages } from './support/check-pages.ts'
import { readAnchors, readHeadings } from './support/markdown.ts'
import { readRepository } from './support/repository.ts'

const files = readRepository()
const page = (path: string): string => files.get(path) ?? ''
/** The types that the entry files export, as `test/exports.json` lists them. */
const publicTypes = (): string[] => {
  const entries = JSON.parse(page('test/exports.json')) as Record<string, { types: string[] }>
  return Object.values(entries).flatMap(({ types }) => types)
}
const scriptsOf = (...paths: string[]): Set<string> =>
  new Set(paths.flatMap((path) => Object.keys((JSON.parse(page(path)) as { scripts: object }).scripts)))

describe('the documentation', () => {
  it('has no broken links', () => {
    const { checked, problems } = checkLinks(files)
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(10)
  })

  it('has no links that break in the package', () => {
    const { checked, problems } = checkLinks(packedFiles(files))
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(10)
  })

  it('names commands, options and scripts that exist', () => {
    const commands = new Map(
      [...COMMANDS, { name: 'help', options: {} }].map(({ name, options }) => [
        name,
        new Set([...Object.keys(options), 'help']),
      ]),
    )
    const { checked, problems } = checkCommands(
      files,
      commands,
      scriptsOf('package.json', 'packages/create-rondo/template/package.json'),
    )
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(100)
  })

  it.each([
    ['Server', 'serve/Server'],
    ['Rondo', 'mount/Rondo'],
    ['Client', 'client/Client'],
  ])('has a table of the methods of %s', (_name, type) => {
    const tables = readOptionTables(page('docs/reference/methods.md'))
    expect(tables.flatMap(({ types }) => types)).toContain(type)
    expect(checkOptions(files, 'docs/reference/methods.md')).toEqual([])
  })

  it('shows the code of the examples unchanged', () => {
    const { checked, problems } = checkExamples(files)
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(0)
  })

  it('has one heading for each error code, with a remedy', () => {
    const sections = page('docs/reference/errors.md').split(/^### /m).slice(1)
    const codes = sections.map((section) => section.split('\n')[0] ?? '')
    expect(codes.length).toBeGreaterThan(20)
    expect(compareNames('error code', codes, Object.keys(ERRORS))).toEqual([])
    expect(sections.filter((section) => !section.includes('**What to do.** '))).toEqual([])
  })

  it('documents every option in the source, and no other', () => {
    const types = readOptionTables(page('docs/reference/options.md')).flatMap((table) => table.types)
    expect(types).toEqual(
      expect.arrayContaining(['ServerOptions', 'ListenOptions', 'serve/StdioOptions', 'FlowLimits']),
    )
    expect(checkOptions(files, 'docs/reference/options.md')).toEqual([])
  })

  it('documents every member of every log event', () => {
    const types = readOptionTables(page('docs/reference/log.md')).flatMap((table) => table.types)
    expect(types).toEqual(expect.arrayContaining(['RoundEvent', 'StateRefusedEvent', 'FaultEvent']))
    expect(checkOptions(files, 'docs/reference/log.md')).toEqual([])
  })

  it('documents every member of the context', () => {
    const types = readOptionTables(page('docs/reference/context.md')).flatMap((table) => table.types)
    expect(types).toEqual(expect.arrayContaining(['Context', 'tool/Question', 'EffectOptions']))
    expect(checkOptions(files, 'docs/reference/context.md')).toEqual([])
  })

  it('has the generated parts that the source gives: run `npx tsx scripts/fill-docs.ts`', () => {
    const pages = fillReference(files)
    expect([...pages.keys()]).toEqual(
      expect.arrayContaining(
        ['cli', 'context', 'errors', 'log', 'methods', 'options', 'telemetry'].map(
          (name) => `docs/reference/${name}.md`,
        ),
      ),
    )
    expect([...pages].filter(([path, text]) => text !== page(path)).map(([path]) => path)).toEqual([])
    expect([...pages].filter(([, text]) => /^\|.*\| *\|/m.test(text)).map(([path]) => path)).toEqual([])
  })

  it('has a table for every options interface that users can import', () => {
    const { checked, problems } = checkPublicOptions(
      readOptionTables(page('docs/reference/options.md')),
      publicTypes(),
    )
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(25)
  })

  it('states the default of every option as the code has it', () => {
    const { checked, problems } = checkDefaults(
      readOptionTables(page('docs/reference/options.md')),
      definedOptions(),
    )
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(200)
  })

  it('says for each page its shape, its audience and its budget, and keeps to it', () => {
    const { words, problems } = checkBudgets(userPages(files))
    expect(problems).toEqual([])
    expect(words).toBeGreaterThan(10_000)
    expect(words).toBeLessThan(41_000)
  })

  it('leads from nothing to a protected fleet in at most 3,500 words', () => {
    const names = ['01-first-tool', '05-keys', '16-deploy', '15-production', 'protect-a-server']
    const journey = names.map((name): [string, string] => [name, page(`docs/guide/${name}.md`)])
    expect(journey.filter(([, text]) => text === '')).toEqual([])
    expect(checkBudgets(journey).words).toBeLessThan(3_500)
  })

  it('keeps the pages for contributors below 5,500 words', () => {
    const pages = [...files].filter(([path]) =>
      /^(?:ARCHITECTURE|CONTRIBUTING)\.md$|^docs\/decisions\//.test(path),
    )
    expect(pages.length).toBeGreaterThan(10)
    expect(checkBudgets(pages).words).toBeLessThan(5_500)
  })

  it('has no two headings with one anchor on a page', () => {
    expect(userPages(files).length).toBeGreaterThan(40)
    expect(checkAnchors(userPages(files))).toEqual([])
  })

  it('states a fact on one page: no long sentence is on two', () => {
    const { checked, problems } = checkRepeats(userPages(files))
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(1_000)
  })

  it('lists every page on docs/README.md', () => {
    const paths = userPages(files).map(([path]) => path.replace(/^docs\//, ''))
    const unlisted = paths.filter(
      (path) => !page('docs/README.md').includes(`${path.includes('/') ? '' : '../'}${path})`),
    )
    expect(unlisted).toEqual(['README.md', 'README.md'])
  })

  it('shows the walk of a call through files that exist', () => {
    const block =
      /<!-- walk -->\n```text\n([\s\S]*?)```\n<!-- \/walk -->/.exec(page('ARCHITECTURE.md'))?.[1] ?? ''
    const walked = Array.from(
      block.matchAll(/^[* ] (\S+\.ts) /gm),
      ([, path]) => `packages/rondo/src/${path}`,
    )
    expect(walked.length).toBeGreaterThan(10)
    expect(walked.filter((path) => !files.has(path))).toEqual([])
  })

  it('names a test for every threat', () => {
    const { checked, problems } = checkThreats(files, 'docs/reference/threats.md')
    expect(problems).toEqual([])
    expect(checked).toBeGreaterThan(15)
  })

  it('has a change log that names the current version', () => {
    const { version } = JSON.parse(page('package.json')) as { version: string }
    expect(readHeadings(page('CHANGELOG.md'), 2).map((heading) => heading.split(' ')[0])).toContain(version)
  })

  it('names no machine and no registry, and neither does the lock file', () => {
    expect(files.has('package-lock.json')).toBe(true)
    expect(files.size).toBeGreaterThan(20)
    expect(checkMachine(files)).toEqual([])
  })
})

describe('a wrong page is reported', () => {
  const links = (text: string) =>
    checkLinks(
      new Map([
        ['docs/a.md', text],
        ['docs/b.md', '# One two\n'],
        ['c/d.ts', ''],
      ]),
    ).problems

  it.each([
    ['[x](b.md)', []],
    ['[x](./b.md#one-two)', []],
    ['[x](../c/d.ts) [y](../c/) [z](https://example.com/b.md)', []],
    ['```\n[x](nowhere.md)\n```\n`[x](nowhere.md)`', []],
    ['[x](nowhere.md)', ['docs/a.md: nowhere.md does not exist']],
    ['[x](b.md#three)', ['docs/a.md: b.md#three has no such heading']],
    ['[x](#three)', ['docs/a.md: #three has no such heading']],
    ['# Same\n# `same`\n[x](#same)', ['docs/a.md: #same is the anchor of two headings']],
    ['[x]: nowhere.md', ['docs/a.md: nowhere.md does not exist']],
    ['<img src="nowhere.svg">', ['docs/a.md: nowhere.svg does not exist']],
  ])('link %j', (text, problems) => expect(links(text)).toEqual(problems))

  const example = "import { a } from 'rondo'\nfunction f() {\n  // #region call\n  a()\n  // #endregion\n}\n"
  const blocks = (text: string) =>
    checkExamples(
      new Map([
        ['docs/guide/a.md', text],
        ['examples/1.ts', example],
      ]),
    ).problems

  it.each([
    [`<!-- from examples/1.ts -->\n\n\`\`\`ts\n${example}\`\`\``, []],
    ['<!-- from examples/1.ts#call -->\n```ts\na()\n```', []],
    ['```sh\nnpm test\n```', []],
    [
      '<!-- from examples/1.ts#call -->\n```ts\nb()\n```',
      ['docs/guide/a.md: a block differs from examples/1.ts#call'],
    ],
    [
      '<!-- from examples/1.ts#other -->\n```ts\na()\n```',
      ['docs/guide/a.md: there is no examples/1.ts#other'],
    ],
    ['<!-- from examples/2.ts -->\n```ts\na()\n```', ['docs/guide/a.md: there is no examples/2.ts']],
    ['```ts\na()\n```', ['docs/guide/a.md: a ts block is not taken from a file in examples/']],
  ])('block %j', (text, problems) => expect(blocks(text)).toEqual(problems))

  it('budgets', () => {
    const problems = (text: string): string[] => checkBudgets([['a.md', text]]).problems
    const head = '<!-- how-to for authors, at most 3 words -->\n'
    expect(problems(`${head}One two three.\n\`\`\`sh\nfour\n\`\`\`\n`)).toEqual([])
    expect(problems(`${head}One.\n<!-- core -->\n| two | three | four |\n<!-- /core -->\n`)).toEqual([])
    expect(problems(`${head}One.\n<!-- core -->\n| two | three | four |\n`).length).toBe(1)
    expect(problems(`${head}One two [three four](five).`)).toEqual(['a.md: 4 words, and its budget is 3'])
    expect(problems('One two.')).toEqual([
      'a.md: begin the page with <!-- how-to for operators, at most 2 words -->',
    ])
    expect(problems('<!-- essay for authors, at most 3 words -->\nOne.').length).toBe(1)
  })

  it('anchors of two headings', () => {
    expect(checkAnchors([['a.md', '# A\n## B\n## A b\n']])).toEqual([])
    expect(checkAnchors([['a.md', '# A\n## `a`\n']])).toEqual(['a.md: two headings are "a"'])
  })

  it('sentences on two pages', () => {
    const sentence = 'A state that was sealed for one caller never opens for any other caller.'
    const repeats = (other: string): string[] =>
      checkRepeats([
        ['a.md', sentence],
        ['b.md', other],
      ]).problems
    expect(repeats(`${sentence.slice(0, -8)} tenant.`)).toEqual([])
    expect(repeats(`First. ${sentence}`)).toEqual([`b.md repeats a.md: ${sentence}`])
  })

  it('threats', () => {
    const threats = (test: string, cell = '`a.ts`') =>
      checkThreats(
        new Map([
          ['S.md', `| # | attack | tests |\n| T1a | x | ${cell} |\n`],
          ['a.ts', test],
        ]),
        'S.md',
      ).problems
    expect(threats("it('T1a refuses', …)")).toEqual([])
    expect(threats("it('T1 refuses', …)")).toEqual(['T1a is not quoted by a.ts'])
    expect(threats("it('T1a refuses', …)", '`a.ts`, `b.ts`')).toEqual(['T1a is not quoted by b.ts'])
    expect(threats('', 'none')).toEqual(['T1a names no test'])
    expect(threats("it('T1a refuses', …)", 'none |\n| T1a | `a.ts`')).toEqual([])
  })

  it('commands', () => {
    const wrong = (text: string) =>
      checkCommands(new Map([['a.md', text]]), new Map([['call', new Set(['json'])]]), new Set(['bench']))
        .problems
    expect(wrong('`rondo call x --json -- --y`, `npm run bench -- core`, rondo dig')).toEqual([])
    expect(wrong('`npx rondo dig x`')).toEqual(['a.md: there is no command "rondo dig"'])
    expect(wrong('```sh\n$ rondo call x --jsn\n```')).toEqual(['a.md: "rondo call" has no option --jsn'])
    expect(wrong('```\nnpm run bensh\n```')).toEqual(['a.md: there is no script "bensh"'])
  })

  it('links in the package', () => {
    const packed = packedFiles(
      new Map([
        ['packages/rondo/package.json', '{ "files": ["docs"] }'],
        ['docs/a.md', '[x](../test/b.ts)'],
        ['test/b.ts', ''],
      ]),
    )
    expect(checkLinks(packed).problems).toEqual(['docs/a.md: ../test/b.ts does not exist'])
  })

  it('names', () => {
    expect(compareNames('code', ['A', 'B'], ['B', 'A'])).toEqual([])
    expect(compareNames('code', ['A', 'C'], ['A', 'B'])).toEqual([
      'code B is not documented',
      'code C is documented but does not exist',
    ])
    expect(compareNames('code', ['A', 'A'], ['A'])).toEqual(['a code is documented twice'])
  })

  it('machines', () => {
    const slash = '/'
    const dot = '.'
    const lines = [
      `${slash}home${slash}someone/x`,
      `see (${slash}work${slash}x)`,
      `https://registry${dot}example${dot}com/`,
      'https://a.example/work/b',
      './work/x',
    ]
    expect(checkMachine(new Map([['a.md', lines.join('\n')]])).length).toBe(3)
  })
})

describe('an option that is not documented, or does not exist, is reported', () => {
  const source = `export interface A {
  x?: number
  y?: string
}
interface C extends Partial<A> {
  z: number
}
interface D extends Pick<A, 'x'> {}
type Some = 'x'

interface E extends Pick<A, Some> {}
`
  const check = (types: string, ...names: string[]) => {
    const rows = names.map((name) => `| \`${name}\` | 1 | text |\n`).join('')
    const markdown = `<!-- options ${types} -->\n\n| option | default | meaning |\n| --- | --- | --- |\n${rows}`
    return checkOptions(
      new Map([
        ['packages/rondo/src/a.ts', source],
        ['o.md', markdown],
      ]),
      'o.md',
    )
  }

  it.each([
    [['A', 'x', 'y'], []],
    [['A', 'x'], ['option of A y is not documented']],
    [['A', 'x', 'y', 'z'], ['option of A z is documented but does not exist']],
    [['A -y', 'x'], []],
    [['B', 'x'], ['there is no interface B']],
    [['C', 'z', 'x', 'y'], []],
    [
      ['C', 'z'],
      ['option of C x is not documented', 'option of C y is not documented'],
    ],
    [['D', 'x'], []],
    [
      ['D', 'y'],
      ['option of D x is not documented', 'option of D y is documented but does not exist'],
    ],
    [['E'], ['option of E x is not documented']],
  ])('%j', ([types = '', ...names], problems) => expect(check(types, ...names)).toEqual(problems))
})

describe('the check of defaults', () => {
  const definition = defineOptions('docs.test', {
    waitMs: number(3_000),
    loud: flag(true),
    name: text('bell'),
  })
  const check = (...rows: [name: string, initial: string][]) =>
    checkDefaults(
      [{ of: 'docs.test', types: [], hidden: [], rows: rows.map(([name, initial]) => ({ name, initial })) }],
      [definition],
    ).problems

  it('accepts the defaults of the definition', () => {
    expect(check(['waitMs', '3 s'], ['loud', '`true`'], ['name', '`bell`'])).toEqual([])
  })

  it.each<[name: string, initial: string, problem: string]>([
    ['waitMs', '4 s', 'docs.test: waitMs is documented as "4 s", and the definition has 3000'],
    ['loud', '`false`', 'docs.test: loud is documented as "`false`", and the definition has true'],
    ['name', 'none', 'docs.test: name is documented as "none", and the definition has "bell"'],
  ])('reports %s with the default %s', (name, initial, problem) => {
    expect(check([name, initial])).toEqual([problem])
  })

  it('reports an option that the definition lacks, and a table without a definition', () => {
    expect(check(['pitch', '440'])).toEqual(['docs.test: there is no option pitch'])
    expect(
      checkDefaults([{ of: 'nothing', types: [], hidden: [], rows: [] }], [definition]).problems,
    ).toEqual(['nothing is not defined'])
  })
})

describe('the check of public options', () => {
  it('reports an options interface without a table', () => {
    const tables = readOptionTables('<!-- options a/BellOptions -->\n\n| option |\n| --- |\n')
    expect(checkPublicOptions(tables, ['Server', 'BellOptions', 'GongOptions', 'GongDefinition'])).toEqual({
      checked: 3,
      problems: ['GongOptions has no table', 'GongDefinition has no table'],
    })
  })
})

describe('the generated reference', () => {
  it('has the comment, the default, the parameters and the links of each member', () => {
    const source = `
      export interface BellOptions<T> extends Other {
        /** How long it rings. Default: 3 s. */
        ringMs?: number
        /**
         * Called for
         * each ring | stroke.
         *
         * @see docs/bells.md#ringing
         */
        readonly onRing: (stroke: { loud: boolean }) => T
        hidden?: boolean
        /** Rings. */
        ring(times: number): void
        ring<K>(times: number, options?: { loud: K }): void
      }
      interface Later { x: string }`
    expect(readMemberDocs(source, 'BellOptions')).toEqual([
      { name: 'ringMs', isRequired: false, initial: '3 s', meaning: 'How long it rings.', see: [] },
      {
        name: 'onRing',
        isRequired: true,
        initial: 'required',
        meaning: 'Called for each ring | stroke.',
        see: ['docs/bells.md#ringing'],
      },
      { name: 'hidden', isRequired: false, initial: '', meaning: '', see: [] },
      {
        name: 'ring',
        parameters: '(times, options?)',
        isRequired: true,
        initial: '',
        meaning: 'Rings.',
        see: [],
      },
    ])
    expect(readMemberDocs(source, 'Missing')).toBeUndefined()
  })

  it.each([
    ['options.md', 'packages/rondo/src/store/sqlite/store.ts', 'Default: 20 ms.', 'Default: 21 ms.'],
    ['errors.md', ERRORS_SOURCE, 'All reasons\n   * look alike', 'All reasons\n   * look the same'],
    ['log.md', 'packages/rondo/src/log/event.ts', 'Length of the state', 'Size of the state'],
    ['log.md', 'packages/rondo/src/log/event.ts', 'A handler takes long', 'A handler is slow'],
    ['telemetry.md', 'packages/rondo/src/telemetry/otel.ts', 'The revision.', 'A revision.'],
    ['threats.md', 'test/threats.json', 'canary.test.ts', 'bird.test.ts'],
    ['context.md', 'packages/rondo/src/tool/context.ts', 'confirm(key: string, ', 'confirm(name: string, '],
    ['methods.md', 'packages/rondo/src/client/client.ts', 'Returns all tools', 'Returns the tools'],
  ])('changes %s with its source', (name, path, before, after) => {
    const changed = new Map(files)
    changed.set(path, page(path).replace(before, after))
    expect(changed.get(path)).not.toBe(page(path))
    const generated = fillReference(changed)
    expect([...generated].filter(([one, text]) => text !== page(one)).map(([one]) => one)).toEqual([
      `docs/reference/${name}`,
    ])
  })

  it('changes cli.md where it differs from the command', () => {
    const changed = new Map(files)
    changed.set('docs/reference/cli.md', page('docs/reference/cli.md').replace('| `--json` |', '| `--jsn` |'))
    expect(fillReference(changed).get('docs/reference/cli.md')).toBe(page('docs/reference/cli.md'))
    expect(changed.get('docs/reference/cli.md')).not.toBe(page('docs/reference/cli.md'))
  })
})

describe('the parsers of the checks', () => {
  it('read anchors as GitHub generates them', () => {
    const anchors = readAnchors(
      '# One, `two`\n## What it is\n## What it is\n```\n# not one\n```\n### STATE_INVALID\n',
    )
    expect([...anchors]).toEqual(['one-two', 'what-it-is', 'what-it-is-1', 'state_invalid'])
  })

  it('read quantities', () => {
    const texts = [
      '3',
      '10 s',
      '1 minute',
      '5 minutes',
      '24 hours',
      '64 KiB',
      '10,000',
      '20 ms',
      'no limit',
      '3 apples',
    ]
    const numbers = [3, 10_000, 60_000, 300_000, 86_400_000, 65_536, 10_000, 20, Number.NaN, Number.NaN]
    expect(texts.map(readQuantity)).toEqual(numbers)
  })

  it('read the properties of an interface, and not those of what is nested in it', () => {
    const source = `
      export interface Limits<T> extends Base {
        /** a: comment { */
        readonly rounds?: number
        nested?: { inner: number
          other: string }
        keys?: (
          which: string,
        ) => T // tail: x
        find(key: string): T
      }
      interface Other { x: number }`
    expect(readInterface(source, 'Limits')).toEqual(['rounds', 'nested', 'keys', 'find'])
    expect(readInterface(source, 'Missing')).toBeUndefined()
  })
})
