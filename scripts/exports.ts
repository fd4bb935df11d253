/**
 * Prints what each entry file exports, or writes it to test/exports.json with --update. Reviewers see a changed
 * public interface as a change of that list.
 */

import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { readSubpaths } from '../test/support/package-exports.ts'
import { readExports } from '../test/support/scan-imports.ts'

const { values } = parseArgs({ options: { update: { type: 'boolean', default: false } } })
const list = Object.fromEntries(
  readSubpaths().map(({ specifier, source }) => [specifier, readExports(readFileSync(source, 'utf8'))]),
)
const text = `${JSON.stringify(list, null, 2)}\n`
if (values.update) {
  writeFileSync('test/exports.json', text)
  spawnSync('npx', ['biome', 'format', '--write', 'test/exports.json'], { stdio: 'inherit' })
} else process.stdout.write(text)
