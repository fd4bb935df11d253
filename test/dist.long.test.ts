/**
 * The package as users get it: packed, unpacked into an empty project, imported, type-checked against, and checked by
 * two package linters. Needs the build (`npm test` builds first) and no network.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkLinks } from './support/check-docs.ts'
import { readSubpaths } from './support/package-exports.ts'
import { readRepository } from './support/repository.ts'

const scratch = mkdtempSync(join(tmpdir(), 'rondo-dist-'))
const project = join(scratch, 'project')
/** The packages that are installed together: all but the one that creates projects. */
const PACKAGES = ['rondo', 'approvals', 'cli', 'restate', 'store-kit', 'gateway']
const tarballs = new Map<string, string>()
const packed = { tarball: '', files: [] as string[] }
const bin = (name: string): string => resolve('node_modules/.bin', name)

/** Copies an installed package into a scratch project. */
function link(name: string, folder = project): void {
  const at = join(folder, 'node_modules', name)
  mkdirSync(dirname(at), { recursive: true })
  symlinkSync(realpathSync(join('node_modules', name)), at)
}

function run(command: string, args: string[], cwd = project) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8', timeout: 600_000 })
  return { status, output: `${stdout}${stderr}` }
}

/** Packs what is in `folder` into `scratch/<name>`. */
function pack(folder: string, name: string): { tarball: string; files: string[] } {
  const destination = join(scratch, name)
  mkdirSync(destination)
  const args = ['pack', '--json', '--ignore-scripts', '--offline', '--pack-destination', destination]
  const json = execFileSync('npm', args, {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [{ filename, files }] = JSON.parse(json) as [{ filename: string; files: { path: string }[] }]
  return { tarball: join(destination, filename), files: files.map((file) => file.path) }
}

beforeAll(() => {
  for (const name of PACKAGES) {
    const one = pack(join('packages', name), `packed-${name}`)
    tarballs.set(name, one.tarball)
    if (name === 'rondo') Object.assign(packed, one)
    const home = join(project, 'node_modules', name === 'rondo' ? name : `@rondo/${name}`)
    mkdirSync(home, { recursive: true })
    execFileSync('tar', ['-xzf', one.tarball, '--strip-components=1', '-C', home])
  }
  writeFileSync(
    join(project, 'package.json'),
    JSON.stringify({ name: 'consumer', type: 'module', private: true }),
  )
  const { dependencies, peerDependencies } = JSON.parse(
    readFileSync('packages/rondo/package.json', 'utf8'),
  ) as Record<string, Record<string, string>>
  const outside = [...Object.keys({ ...dependencies, ...peerDependencies }), '@restatedev/restate-sdk']
  for (const name of [...outside, 'zod', '@types/node']) link(name)
})

/** Every package that npm installs along with these. */
function installedWith(names: readonly string[], found = new Set<string>()): Set<string> {
  for (const name of names) {
    if (found.has(name)) continue
    found.add(name)
    const manifest = JSON.parse(readFileSync(join('node_modules', name, 'package.json'), 'utf8'))
    installedWith(Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies }), found)
  }
  return found
}

/** Creates a project with only the package and its dependencies; returns its folder. */
function bareProject(): string {
  const folder = join(scratch, 'bare')
  for (const name of ['rondo', '@rondo'])
    cpSync(join(project, 'node_modules', name), join(folder, 'node_modules', name), { recursive: true })
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'bare', type: 'module', private: true }))
  const { dependencies } = JSON.parse(readFileSync('packages/rondo/package.json', 'utf8')) as {
    dependencies: Record<string, string>
  }
  for (const name of [...Object.keys(dependencies), 'zod']) link(name, folder)
  return folder
}

afterAll(() => rmSync(scratch, { recursive: true, force: true }))

describe('the packed package', () => {
  const program = (store: string): string => `
    import { createServer, generateKey } from 'rondo'
    ${store}
    const server = createServer({ name: 'bare', version: '1.0.0', keys: generateKey(), store })
    server.tool('go', {}, () => 'went')
    await server.listen({ port: 0, signals: false })
    process.exit(0)
  `

  it.skipIf(Number(process.versions.node.split('.')[0]) >= 22)(
    'names the package that SQLite needs on this version of Node at startup',
    () => {
      const folder = bareProject()
      const store = `import { createSqliteStore } from 'rondo/sqlite'
        const store = createSqliteStore({ file: 'rondo.db' })`
      const { output } = run(process.execPath, ['--input-type=module', '-e', program(store)], folder)
      expect(output).toContain('install the package "libsql", or use Node 22.13 or later')
      rmSync(folder, { recursive: true })
    },
  )

  it('names the package that PostgreSQL needs at startup', () => {
    const folder = bareProject()
    const store = `import { createPostgresStore } from 'rondo/postgres'
      const store = createPostgresStore({ connectionString: 'postgres://127.0.0.1:1/none' })`
    const { output } = run(process.execPath, ['--input-type=module', '-e', program(store)], folder)
    expect(output).toContain('The PostgreSQL store needs the package "pg"')
    rmSync(folder, { recursive: true })
  })

  it('names the package that access tokens need at startup; logins of clients need none', () => {
    const folder = bareProject()
    const load = (path: string) => `console.log(Object.keys(await import('${path}')).join())`
    const accept = `import { oauthResource } from 'rondo/oauth'
      oauthResource({ resource: 'https://x.example/mcp', issuers: ['https://login.example'] })`
    const missing = run(process.execPath, ['--input-type=module', '-e', accept], folder)
    expect(missing.output).toContain('need the package "jose": run npm install jose')
    const client = run(process.execPath, ['--input-type=module', '-e', load('rondo/client/oauth')], folder)
    expect(client.output).toBe('enterprise,exchange,loopback,memoryTokenStore,oauth,parseLogin,workload\n')
    rmSync(folder, { recursive: true })
  })

  it('names the official package that rondo/sdk needs, also to require', () => {
    const folder = bareProject()
    const sentence =
      'rondo/sdk needs the package "@modelcontextprotocol/server": run npm install @modelcontextprotocol/server'
    const create = `createRondo({ audience: 'x' })`
    const program = `import { createRondo } from 'rondo/sdk'\n${create}`
    const imported = run(process.execPath, ['--input-type=module', '-e', program], folder)
    expect(imported.output).toContain(sentence)
    const required = [
      '--input-type=commonjs',
      '-e',
      `const { createRondo } = require('rondo/sdk')\n${create}`,
    ]
    expect(run(process.execPath, required, folder).output).toContain(sentence)
    // Negative control: with the package nothing is said.
    link('@modelcontextprotocol/server', folder)
    expect(run(process.execPath, required, folder)).toMatchObject({
      status: 0,
      output: expect.not.stringContaining('rondo/sdk'),
    })
    rmSync(folder, { recursive: true })
  })

  it('runs in a bundle that contains the packages it needs, where none is installed', () => {
    const source = join(project, 'bundled.mjs')
    writeFileSync(
      source,
      `import { McpServer } from '@modelcontextprotocol/server'
      import { oauthResource } from 'rondo/oauth'
      import { createRondo, generateKey } from 'rondo/sdk'
      oauthResource({ resource: 'https://x.example/mcp', issuers: ['https://login.example'] })
      const rondo = createRondo({ audience: 'x', keys: generateKey() })
      rondo.mount(new McpServer({ name: 'x', version: '1' }))
      await rondo.ready()
      await rondo.close()
      console.log('ready')`,
    )
    const alone = join(scratch, 'alone')
    const outputs = ['--bundle', '--platform=node', '--format=esm', `--outfile=${join(alone, 'server.mjs')}`]
    expect(run(bin('esbuild'), [source, ...outputs, '--log-level=warning'])).toMatchObject({ status: 0 })
    expect(run(process.execPath, ['server.mjs'], alone)).toEqual({ status: 0, output: 'ready\n' })
  })

  it('names the package that a file needs, if the command runs it', () => {
    const folder = bareProject()
    writeFileSync(join(folder, 'server.mjs'), `import '@modelcontextprotocol/server'\nexport default 5`)
    const { output } = run(
      process.execPath,
      ['node_modules/@rondo/cli/dist/cli.js', 'tools', 'server.mjs'],
      folder,
    )
    expect(output).toContain('needs the package "@modelcontextprotocol/server": run npm install')
    rmSync(folder, { recursive: true })
  })

  it('J3 names what Restate needs to run tasks at startup', () => {
    const folder = bareProject()
    const store = `import { createRestateStore } from '@rondo/restate'
      const store = createRestateStore({ ingress: 'http://127.0.0.1:1', endpoint: { port: 0 } })`
    const { output } = run(process.execPath, ['--input-type=module', '-e', program(store)], folder)
    const isOld = Number(process.versions.node.split('.')[0]) < 22
    expect(output).toContain(
      isOld
        ? 'The Restate engine needs Node 22 or later to run tasks'
        : 'The Restate engine needs the package "@restatedev/restate-sdk"',
    )
    rmSync(folder, { recursive: true })
  })

  it('contains the build, and no tests, sources or reports', () => {
    expect(packed.files).toEqual(
      expect.arrayContaining(['package.json', 'README.md', 'LICENSE', 'dist/index.js', 'dist/index.d.ts']),
    )
    const foreign = packed.files.filter((path) =>
      /\.test\.|^src\/|^test\/|^examples\/|^test-report/.test(path),
    )
    expect(foreign).toEqual([])
    expect(readdirSync(join(project, 'node_modules/rondo'))).toContain('dist')
  })

  it('contains every page that its README and its documentation link to', () => {
    const files = readRepository(join(project, 'node_modules/rondo'))
    const broken = () => checkLinks(files).problems.filter((text) => /^(README|docs\/)/.test(text))
    expect(checkLinks(files).checked).toBeGreaterThan(100)
    expect(broken()).toEqual([])
    files.delete('docs/guide/05-keys.md')
    expect(broken()).toContain('README.md: docs/guide/05-keys.md does not exist')
  })

  it('installs at most one other package', () => {
    const manifest = JSON.parse(readFileSync(join(project, 'node_modules/rondo/package.json'), 'utf8'))
    const names = Object.keys({ ...manifest.dependencies, ...manifest.optionalDependencies })
    expect([...installedWith(names)]).toEqual(['eventsource-parser'])
    for (const name of Object.keys(manifest.peerDependencies)) {
      expect(manifest.peerDependenciesMeta[name]).toEqual({ optional: true })
    }
    // Negative control: the packages bundled into the command would add five more.
    expect(installedWith(['@clack/prompts']).size).toBe(6)
  })

  it('imports only packages that are installed with it, or optional peers', () => {
    const home = join(project, 'node_modules/rondo')
    const manifest = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'))
    const known = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies })
    // The command is in another package, and says so where that is missing.
    const code = packed.files.filter((path) => /\.(js|d\.ts)$/.test(path) && path !== 'bin/rondo.js')
    const imported = code.flatMap((path) => {
      const text = readFileSync(join(home, path), 'utf8')
      return [...text.matchAll(/(?:^[^'"]*\bfrom|\bimport\() ?['"](?!node:)([a-z@][^'"]*)['"]/gm)].map(
        ([, name]) => name,
      )
    })
    const names = new Set(imported.map((name = '') => /^(@[^/]+\/)?[^/]+/.exec(name)?.[0] ?? ''))
    expect(names).toContain('eventsource-parser')
    expect([...names].filter((name) => !known.includes(name))).toEqual([])
  })

  it('contains the licences of the packages bundled into the command', () => {
    for (const [folder, bundled] of [
      ['@rondo/cli', installedWith(['@clack/prompts', 'preact'])],
      ['rondo', installedWith(['oauth4webapi'])],
    ] as const) {
      const file = join(project, 'node_modules', folder, 'dist/THIRD-PARTY-NOTICES.txt')
      const notices = readFileSync(file, 'utf8')
      for (const name of bundled) expect(notices).toMatch(new RegExp(`^${name} [\\d.]+ \\(MIT\\)\n\n`, 'm'))
      expect(notices.match(/Permission is hereby granted, free of charge/g)).toHaveLength(bundled.size)
    }
  })

  it.each([
    ['rondo', []],
    // The page of the console has no source map.
    ['@rondo/cli', ['preact']],
  ])('lists the packages bundled into %s with their versions, as scanners read them', (folder, unmapped) => {
    const dist = join(project, 'node_modules', folder, 'dist')
    const maps = readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.map'),
    )
    const sources = maps.flatMap((name) => {
      const { sources } = JSON.parse(readFileSync(join(dist, name), 'utf8')) as { sources: string[] }
      return sources.flatMap((source) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(source)?.[1] ?? [])
    })
    const names = [...new Set([...sources, ...unmapped])].sort()
    expect(names.length).toBeGreaterThan(0)
    const { bomFormat, components } = JSON.parse(readFileSync(join(dist, 'bundled.cdx.json'), 'utf8'))
    expect(bomFormat).toBe('CycloneDX')
    expect(components.map(({ name }: { name: string }) => name).sort()).toEqual(names)
    for (const { name, version, purl, licenses } of components) {
      const installed = JSON.parse(readFileSync(join('node_modules', name, 'package.json'), 'utf8'))
      expect([version, licenses[0].license.id]).toEqual([installed.version, installed.license])
      expect(decodeURIComponent(purl)).toBe(`pkg:npm/${name}@${version}`)
    }
  })

  it('cannot be published while the addresses for reports reach nobody', () => {
    const check = (text: string) => {
      const folder = mkdtempSync(join(scratch, 'contact-'))
      writeFileSync(join(folder, 'package.json'), text)
      return run(process.execPath, [resolve('scripts/check-contact.js')], folder)
    }
    const own = readFileSync('packages/rondo/package.json', 'utf8')
    const { email } = JSON.parse(own).bugs
    expect(readFileSync('SECURITY.md', 'utf8')).toContain(`**${email}**`)
    for (const name of readdirSync('packages')) {
      const { scripts, bugs } = JSON.parse(readFileSync(join('packages', name, 'package.json'), 'utf8'))
      expect(scripts?.prepublishOnly, name).toBe('node ../../scripts/check-contact.js')
      expect(bugs?.email, name).toBe(email)
    }
    expect(check('{}').status).toBe(1)
    expect(check(own).output).toContain('security@rondo.example')
    expect(check(own).status).toBe(1)
    expect(check(own.replaceAll('rondo.example', 'rondo.dev')).status).toBe(0)
  })

  it('can be imported by every subpath', () => {
    const specifiers = readSubpaths().map(({ specifier }) => specifier)
    expect(specifiers).toContain('rondo')
    const lines = specifiers.map(
      (specifier) => `console.log(Object.keys(await import('${specifier}')).length > 0)`,
    )
    const { status, output } = run(process.execPath, ['--input-type=module', '-e', lines.join('\n')])
    expect(output).toBe('true\n'.repeat(specifiers.length))
    expect(status).toBe(0)
  })

  it('has a command that can be run', () => {
    for (const folder of ['rondo', '@rondo/cli']) {
      const { status, output } = run(process.execPath, [`node_modules/${folder}/bin/rondo.js`, 'help'])
      expect(output).toContain('Usage: rondo <command>')
      expect(status).toBe(0)
    }
  })

  it('says what to install where the command is missing', () => {
    const folder = bareProject()
    rmSync(join(folder, 'node_modules/@rondo'), { recursive: true })
    const { status, output } = run(process.execPath, ['node_modules/rondo/bin/rondo.js', 'help'], folder)
    expect(output).toBe(
      'The rondo command is not installed here. Install it with: npm install --save-dev @rondo/cli\n',
    )
    expect(status).toBe(1)
    rmSync(folder, { recursive: true })
  })

  it('recognises its values across packages that are installed together', () => {
    const { status, output } = run(process.execPath, [
      '--input-type=module',
      '-e',
      `import { RondoError, createServer, generateKey, inputRequired } from 'rondo'
       import { connect } from 'rondo/client'
       import { createRestateStore } from '@rondo/restate'
       import { storeContract } from '@rondo/store-kit'
       import * as internal from 'rondo/internal'
       const server = createServer({ name: 'x', version: '1.0.0', keys: generateKey(), log: 'off' })
       server.tool('by_hand', {}, () => inputRequired({ requestState: 'mine' }))
       const client = await connect(server)
       const round = await client.round({ method: 'tools/call', name: 'by_hand' })
       let thrown
       try { createRestateStore({}) } catch (error) { thrown = error }
       const refused = await client.callTool('nowhere', {}).catch((error) => error)
       console.log(round.resultType, thrown instanceof TypeError, refused instanceof RondoError, typeof storeContract, typeof internal.misuse)
       await client.close()`,
    ])
    expect(output).toBe('input_required true true function function\n')
    expect(status).toBe(0)
  })

  it('cannot be imported past its exports', () => {
    const { status, output } = run(process.execPath, [
      '--input-type=module',
      '-e',
      "await import('rondo/dist/index.js')",
    ])
    expect(output).toContain('ERR_PACKAGE_PATH_NOT_EXPORTED')
    expect(status).not.toBe(0)
  })
})

describe('a consumer in TypeScript', () => {
  const tsc = (source: string) => {
    writeFileSync(join(project, 'consumer.ts'), source)
    const flags =
      '--noEmit --strict --target ES2023 --module NodeNext --moduleResolution NodeNext --types node'
    return run(bin('tsc'), [...flags.split(' '), 'consumer.ts'])
  }
  const program = (answer: string) => `
    import { createServer } from 'rondo'
    import { z } from 'zod'
    const server = createServer({ name: 'consumer', version: '1.0.0' })
    server.tool('greet', { description: 'Greets', input: z.object({ loud: z.boolean() }) }, async ({ loud }, ctx) => {
      const isLoud: boolean = loud
      const { name } = await ctx.ask('name', { message: 'Who?', schema: z.object({ name: z.string() }) })
      const text: ${answer} = name
      return isLoud ? 'HELLO' : 'hello ' + text
    })
  `

  it('gets typed arguments and answers', () => {
    const { status, output } = tsc(program('string'))
    expect(output).toBe('')
    expect(status).toBe(0)
  })

  it('gets typed arguments in an official server', { timeout: 600_000 }, () => {
    const { status, output } = tsc(`
      import { McpServer } from '@modelcontextprotocol/server'
      import { createRondo } from 'rondo/sdk'
      import { z } from 'zod'
      const rondo = createRondo({ audience: 'consumer' })
      const server = rondo.mount(new McpServer({ name: 'consumer', version: '1.0.0' }))
      server.registerTool('greet', { inputSchema: z.object({ loud: z.boolean() }) }, rondo.tool(async ({ loud }, ctx) => {
        const isLoud: boolean = loud
        // @ts-expect-error
        const text: string = loud
        const sure: boolean = await ctx.confirm('sure', 'Greet?')
        return { content: [{ type: 'text', text: String(isLoud && sure) + text }] }
      }))
    `)
    expect(output).toBe('')
    expect(status).toBe(0)
  })

  /** Checks the declarations of the package too, with only the given libraries. */
  const strictly = (libraries: string, types: string, ...specifiers: string[]) => {
    const lines = specifiers.map(
      (name, at) => `import * as m${at} from '${name}'; export const x${at} = m${at}`,
    )
    writeFileSync(join(project, 'strict.ts'), lines.join('\n'))
    const flags = '--noEmit --strict --target ES2022 --module NodeNext --moduleResolution NodeNext'
    const own = ['--skipLibCheck', 'false', '--lib', libraries, '--types', types]
    return run(bin('tsc'), [...flags.split(' '), ...own, 'strict.ts'])
  }

  it('needs no Node types for the client and the forms, and no library beyond ES2022 and DOM', () => {
    const entries = ['rondo/client', 'rondo/forms', 'rondo/form-element']
    expect(strictly('ES2022,DOM', '', ...entries)).toEqual({ status: 0, output: '' })
    const without = strictly('ES2022', '', 'rondo/client')
    expect(without.output).toContain("Cannot find name 'AbortSignal'")
  })

  it('needs no library beyond ES2022 and the Node types', () => {
    const specifiers = [
      'rondo',
      'rondo/client',
      'rondo/forms',
      'rondo/testing',
      'rondo/sqlite',
      'rondo/postgres',
      '@rondo/approvals',
      '@rondo/restate',
    ]
    expect(strictly('ES2022', 'node', ...specifiers)).toEqual({ status: 0, output: '' })
  })

  it('gets a compile error if an answer is used as another type', () => {
    const { status, output } = tsc(program('number'))
    expect(output).toContain("Type 'string' is not assignable to type 'number'")
    expect(status).not.toBe(0)
  })
})

describe('the linters for packages', () => {
  const publint = (tarball: string) => run(bin('publint'), ['run', tarball, '--strict'])
  const attw = (tarball: string) =>
    run(bin('attw'), [
      ...[tarball, '--profile', 'esm-only', '--format', 'ascii', '--no-emoji', '--no-color'],
      // Only packages of the same release use it, and they are compiled against the sources.
      ...['--exclude-entrypoints', 'internal'],
    ])

  /** The packed package, but its main types file does not exist. */
  const packBroken = (): string => {
    const folder = join(scratch, 'broken')
    cpSync(join(project, 'node_modules/rondo'), folder, { recursive: true })
    const file = join(folder, 'package.json')
    writeFileSync(file, readFileSync(file, 'utf8').replace('./dist/index.d.ts', './dist/nowhere.d.ts'))
    return pack(folder, 'packed-broken').tarball
  }

  it.each(PACKAGES)('publint finds nothing in %s', (name) => {
    const { status, output } = publint(tarballs.get(name) ?? '')
    expect(output).not.toMatch(/warning|error/i)
    expect(status).toBe(0)
  })

  it.each(PACKAGES.filter((name) => name !== 'cli'))('attw resolves every subpath of %s', (name) => {
    const { status, output } = attw(tarballs.get(name) ?? '')
    expect(output).toContain('OK (ESM)')
    expect(status).toBe(0)
  })

  it('both complain about a package whose types are missing', () => {
    const broken = packBroken()
    expect(publint(broken)).toMatchObject({ status: 1, output: expect.stringContaining('nowhere.d.ts') })
    expect(attw(broken).status).toBe(1)
  })
})
