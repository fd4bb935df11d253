/**
 * Builds the packages. Each gets one JavaScript file per entry, and shared chunks for what several of them use, so that
 * an error thrown in one is an instance of the class that another exports. Not minified: what is installed can be read.
 * docs/decisions/0009 says why files are bundled at all. `rondo` is not bundled into the packages on top of it.
 *
 * Packages that only the command and `rondo/client/oauth` need are bundled, so that a server does not install them. Their
 * licences are copied into dist/THIRD-PARTY-NOTICES.txt, and their names and versions into dist/bundled.cdx.json, because
 * `npm audit` sees only what is installed. Every other package is imported from where it is installed.
 *
 * Declarations that no entry leads to are left out: nobody can import them, and they name packages that are bundled.
 */

import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { build } from 'esbuild'
import { bundlePage } from '../packages/cli/bundle-console.js'

/** Entries of `@rondo/cli`, which exports nothing: the command, and what it runs in processes of their own. */
const COMMAND = ['./dist/cli.js', './dist/serve-file.js', './dist/console/instance.js']
/** Files of `rondo` that run in threads of their own. */
const THREADS = ['./dist/store/sqlite/thread-file.js']
/** Packages on top of `rondo` have a README of their own. */
const OWN_PAGES = ['approvals', 'cli', 'restate', 'store-kit', 'gateway'].map((name) =>
  join('packages', name, 'README.md'),
)
/** The folder into which the compiler has put the declarations of all packages. */
const TYPES = 'packages/.types'

/** In browsers the client has `fetch` and no Node modules. */
const forBrowsers = {
  name: 'for-browsers',
  setup({ onResolve }) {
    onResolve({ filter: /\/platform\.ts$/ }, ({ path, resolveDir }) => ({
      path: resolve(resolveDir, path.replace('platform.ts', 'platform-browser.ts')),
    }))
  },
}

const BUNDLED = ['@clack/prompts', 'oauth4webapi']
const LICENCES = ['MIT', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', 'Apache-2.0']

const bundleListed = {
  name: 'bundle-listed',
  setup({ onResolve }) {
    onResolve({ filter: /^[^./]/ }, ({ path, importer, kind }) => {
      if (kind === 'entry-point' || BUNDLED.includes(path) || importer.includes('/node_modules/'))
        return undefined
      return { path, external: true }
    })
  },
}

/** The packages among the inputs of some builds, with the texts of their licences. */
function bundledIn(...metafiles) {
  const folders = metafiles
    .flatMap(({ inputs }) => Object.keys(inputs))
    .flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? [])
  return [...new Set(folders)].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one))
    if (!LICENCES.includes(license) || file === undefined) {
      throw new Error(`${name} cannot be bundled: its licence is ${license}, in the file ${file}`)
    }
    return { name, version, license, text: readFileSync(join(folder, file), 'utf8').trim() }
  })
}

/** A list of packages that scanners read (CycloneDX). */
function toBom(packages) {
  const components = packages.map(({ name, version, license }) => ({
    type: 'library',
    name,
    version,
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
    licenses: [{ license: { id: license } }],
  }))
  return { bomFormat: 'CycloneDX', specVersion: '1.6', version: 1, components }
}

/** The declarations to which these lead, themselves included. */
function declarationsFrom(paths, found = new Set()) {
  for (const path of paths) {
    if (found.has(path)) continue
    found.add(path)
    const named = readFileSync(path, 'utf8').matchAll(/(?:\bfrom|\bimport\() ?['"](\.[^'"]+)\.[jt]s['"]/g)
    declarationsFrom(
      [...named].map(([, name]) => join(dirname(path), `${name}.d.ts`)),
      found,
    )
  }
  return found
}

function copyDeclarations(name, subpaths) {
  const entries = Object.values(subpaths).flatMap(({ types }) => types ?? [])
  const root = join(TYPES, name, 'src')
  const reached = declarationsFrom(entries.map((path) => join(root, path.replace('./dist/', ''))))
  for (const path of reached) cpSync(path, join('packages', name, 'dist', relative(root, path)))
}

async function bundle(name, entries) {
  const source = join('packages', name, 'src')
  const outdir = join('packages', name, 'dist')
  const { metafile } = await build({
    entryPoints: entries.map((path) => path.replace('./dist', source).replace(/\.js$/, '.ts')),
    outdir,
    outbase: source,
    chunkNames: 'chunk/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    plugins: [bundleListed],
    metafile: true,
    sourcemap: true,
    sourcesContent: true,
  })
  return metafile
}

/** Writes what a package contains of other packages, if anything. */
function writeBundled(folder, bundled) {
  if (bundled.length === 0) return
  const notices = bundled.map(
    ({ name, version, license, text }) => `${name} ${version} (${license})\n\n${text}\n`,
  )
  writeFileSync(
    join(folder, 'dist/THIRD-PARTY-NOTICES.txt'),
    ['This package contains code of these packages.\n', ...notices].join(`\n${'-'.repeat(80)}\n\n`),
  )
  writeFileSync(join(folder, 'dist/bundled.cdx.json'), `${JSON.stringify(toBom(bundled), null, 2)}\n`)
}

const page = await bundlePage()

for (const name of readdirSync('packages').filter((one) => existsSync(join('packages', one, 'src')))) {
  const folder = join('packages', name)
  const { exports: subpaths, files } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const targets = Object.values(subpaths).flatMap((target) => target.default ?? target)
  const entries = targets.filter((path) => path.startsWith('./dist/'))
  if (name === 'rondo') entries.push(...THREADS)
  rmSync(join(folder, 'dist'), { recursive: true, force: true })
  copyDeclarations(name, subpaths)
  const isCommand = entries.length === 0
  const metafile = await bundle(name, isCommand ? COMMAND : entries)
  writeBundled(folder, bundledIn(metafile, ...(isCommand ? [page.metafile] : [])))
  // The pages of the repository that the package contains, unless it has one of its own.
  for (const page of files.filter((name) => /\.md$|^LICENSE$|^docs$/.test(name)))
    if (existsSync(page) && !OWN_PAGES.includes(join(folder, page))) {
      // A page that is gone from the repository goes from the copy as well.
      rmSync(join(folder, page), { recursive: true, force: true })
      cpSync(page, join(folder, page), { recursive: true })
    }
}
rmSync(TYPES, { recursive: true })

await build({
  entryPoints: { 'client.browser': 'packages/rondo/src/client.ts' },
  outdir: 'packages/rondo/dist',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  packages: 'external',
  plugins: [forBrowsers],
  sourcemap: true,
  sourcesContent: true,
})

mkdirSync('packages/cli/dist/console', { recursive: true })
for (const [name, bytes] of page.files) writeFileSync(`packages/cli/dist/console/${name}`, bytes)
