/**
 * Builds the JavaScript of the package: one file per entry, and shared chunks for what several of them use, so that
 * an error thrown in one is an instance of the class that another exports. Not minified: what is installed can be read.
 * docs/decisions/0009 says why files are bundled at all.
 *
 * Packages that only the command and `rondo/client/oauth` need are bundled, so that a server does not install them. Their
 * licences are copied into dist/THIRD-PARTY-NOTICES.txt, and their names and versions into dist/bundled.cdx.json, because
 * `npm audit` sees only what is installed. Every other package is imported from where it is installed.
 *
 * Declarations that no entry leads to are removed: nobody can import them, and they name packages that are bundled.
 */

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { build } from 'esbuild'
import { bundlePage } from './bundle-console.js'

const { exports: subpaths } = JSON.parse(readFileSync('package.json', 'utf8'))
const entrances = [
  ...Object.values(subpaths).flatMap((target) => target.default ?? []),
  // The command, and what it runs in processes of their own.
  './dist/cli.js',
  './dist/cli/serve-file.js',
  './dist/cli/console/instance.js',
]

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

const reached = declarationsFrom(
  Object.values(subpaths).flatMap(({ types }) => (types === undefined ? [] : join(types))),
)
for (const path of readdirSync('dist', { recursive: true }).map((name) => join('dist', name))) {
  if (path.endsWith('.d.ts') && !reached.has(path)) rmSync(path)
}

mkdirSync('dist/console', { recursive: true })
const page = await bundlePage()
for (const [name, bytes] of page.files) writeFileSync(`dist/console/${name}`, bytes)

await build({
  entryPoints: { 'client.browser': 'src/client.ts' },
  outdir: 'dist',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  packages: 'external',
  plugins: [forBrowsers],
  sourcemap: true,
  sourcesContent: true,
})

const { metafile } = await build({
  entryPoints: entrances.map((path) => path.replace(/^(\.\/)?dist\//, 'src/').replace(/\.js$/, '.ts')),
  outdir: 'dist',
  outbase: 'src',
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

const bundled = bundledIn(page.metafile, metafile)
const notices = bundled.map(
  ({ name, version, license, text }) => `${name} ${version} (${license})\n\n${text}\n`,
)
writeFileSync(
  'dist/THIRD-PARTY-NOTICES.txt',
  ['This package contains code of these packages.\n', ...notices].join(`\n${'-'.repeat(80)}\n\n`),
)
writeFileSync('dist/bundled.cdx.json', `${JSON.stringify(toBom(bundled), null, 2)}\n`)
