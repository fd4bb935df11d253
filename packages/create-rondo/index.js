#!/usr/bin/env node
/** `npm create rondo`: copies the template into a new or empty folder and says what to do next. */

import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const TEMPLATE = fileURLToPath(new URL('./template', import.meta.url))
const NAME = 'my-server'
/** The packages of a project that come as files; the last one is a peer of the second, which npm would download. */
const PACKAGES = ['rondo', '@rondo/cli', '@rondo/gateway']

const HELP = `Creates an MCP server with Rondo: a tool that asks, a tool that runs as a task, a test and a store.

Usage: npm create rondo <folder>
       npm create rondo <folder> -- [options]

The folder must not exist yet, or be empty. "." is the current folder.

Options:
  --rondo VERSION|FILE  the version of rondo and @rondo/cli to depend on, or the package file of rondo made by
                        npm pack, with those of @rondo/cli and @rondo/gateway beside it; they are copied into
                        the project
  --help                shows this text
  --version             shows the version of this command`

/** A mistake of the user: one sentence and an exit code. */
class Refusal extends Error {}

function readLine(args) {
  const options = { rondo: { type: 'string' }, help: { type: 'boolean' }, version: { type: 'boolean' } }
  try {
    return parseArgs({ args, options, allowPositionals: true })
  } catch (error) {
    throw new Refusal(`${error.message.split('. ')[0]}. "npm create rondo -- --help" lists the options.`)
  }
}

/** The folder, which is empty or does not exist. A new repository counts as empty. */
function findFolder(positionals) {
  const [text, ...others] = positionals
  if (!text) throw new Refusal('Name a folder for the project: npm create rondo my-server')
  if (others.length > 0) throw new Refusal(`Name one folder; got ${positionals.join(', ')}.`)
  const folder = resolve(text)
  if (!existsSync(folder)) return folder
  if (!statSync(folder).isDirectory())
    throw new Refusal(`${text} is a file. Name a folder that does not exist yet.`)
  const found = readdirSync(folder).filter((name) => name !== '.git')
  if (found.length === 0) return folder
  throw new Refusal(`${text} is not empty: it contains ${found[0]}. Name a folder that does not exist yet.`)
}

/** A name that npm accepts, and that no dependency has. */
function nameOf(folder, dependencies) {
  const plain = basename(folder)
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, '-')
    .replace(/^[._-]+|[._-]+$/g, '')
    .slice(0, 100)
  if (plain === '' || plain === 'node_modules' || plain === 'favicon.ico') return NAME
  return Object.hasOwn(dependencies, plain) ? `${plain}-server` : plain
}

function isOlderThan(version, major, minor) {
  const [a = 0, b = 0] = version.split('.').map(Number)
  return a < major || (a === major && b < minor)
}

/** The versions to depend on, by package, and the files to copy for them. */
function findRondo(given) {
  if (given === undefined) return { ranges: {}, files: [] }
  const isFile = /\.tgz$|^[./\\]/.test(given)
  if (!isFile) return { ranges: { rondo: given, '@rondo/cli': given }, files: [] }
  // `npm pack` of all packages leaves them side by side, with the same version.
  const files = PACKAGES.map((name) => {
    const prefix = `${name.replace('@', '').replace('/', '-')}-`
    const file = given.replace(/(?<=^|[/\\])rondo-(?=[^/\\]*$)/, prefix)
    if (existsSync(file) && statSync(file).isFile()) return file
    const command = `npm pack ${PACKAGES.map((one) => `-w ${one}`).join(' ')}`
    throw new Refusal(`There is no file ${file}. "${command}" in a checkout of Rondo creates it.`)
  })
  const ranges = Object.fromEntries(PACKAGES.map((name, i) => [name, `file:vendor/${basename(files[i])}`]))
  return { ranges, files: files.map((file) => resolve(file)) }
}

function makeManifest(folder, ranges) {
  const manifest = JSON.parse(readFileSync(join(TEMPLATE, 'package.json'), 'utf8'))
  const { dependencies, devDependencies } = manifest
  manifest.name = nameOf(folder, { ...dependencies, ...devDependencies })
  manifest.mcpName = manifest.mcpName.replace(NAME, manifest.name)
  for (const table of [dependencies, devDependencies])
    for (const name of Object.keys(table)) table[name] = ranges[name] ?? table[name]
  const gateway = ranges['@rondo/gateway']
  if (gateway !== undefined) manifest.devDependencies = { ...devDependencies, '@rondo/gateway': gateway }
  // Node has SQLite built in since 22.13.
  if (isOlderThan(process.versions.node, 22, 13)) {
    manifest.engines.node = '>=20.19'
    manifest.dependencies = { libsql: '^0.5.29', ...dependencies }
  }
  return manifest
}

/** Copies the template, with the name of the project in place of its own. Never overwrites a file. */
function copy(from, to, name) {
  mkdirSync(to, { recursive: true })
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    if (entry.name === 'package.json') continue
    const source = join(from, entry.name)
    // npm packs no file named .gitignore.
    const target = join(to, entry.name.replace(/^_/, '.'))
    if (entry.isDirectory()) copy(source, target, name)
    else writeFileSync(target, readFileSync(source, 'utf8').replaceAll(NAME, name), { flag: 'wx' })
  }
}

function nextSteps(folder, name) {
  const path = relative(process.cwd(), folder)
  const cd = path === '' ? [] : [`  cd ${/^[\w./\\-]+$/.test(path) ? path : JSON.stringify(path)}`]
  return [
    `Created ${name} in ${path === '' ? 'this folder' : path}. Next:`,
    '',
    ...cd,
    '  npm install',
    '  npm run dev',
    '',
    'Then, in a second terminal in that folder, call the tool that asks you:',
    '',
    '  npx rondo call http://127.0.0.1:3000/mcp resolve_bug id=7',
    '',
    'README.md says what is where.',
  ].join('\n')
}

function main(args) {
  if (isOlderThan(process.versions.node, 20, 19)) {
    throw new Refusal(`Rondo needs Node 20.19 or later; this is ${process.versions.node}.`)
  }
  const { values, positionals } = readLine(args)
  if (values.help) return HELP
  if (values.version) return JSON.parse(readFileSync(join(dirname(TEMPLATE), 'package.json'), 'utf8')).version
  const folder = findFolder(positionals)
  const { ranges, files } = findRondo(values.rondo)
  const manifest = makeManifest(folder, ranges)
  copy(TEMPLATE, folder, manifest.name)
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`, { flag: 'wx' })
  if (files.length > 0) mkdirSync(join(folder, 'vendor'))
  for (const file of files) copyFileSync(file, join(folder, 'vendor', basename(file)))
  return nextSteps(folder, manifest.name)
}

try {
  console.log(main(process.argv.slice(2)))
} catch (error) {
  if (!(error instanceof Refusal) && error?.code === undefined) throw error
  console.error(error.message)
  process.exitCode = 1
}
