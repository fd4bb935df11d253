/** `scripts/ensure-restate.sh` in a checkout that has nothing downloaded. */

import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'

const folder = mkdtempSync(join(tmpdir(), 'rondo-ensure-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
mkdirSync(join(folder, 'scripts'))
const script = join(folder, 'scripts/ensure-restate.sh')
copyFileSync('scripts/ensure-restate.sh', script)

/** No registry is there, so a download fails and is seen. */
function run(env: Record<string, string>) {
  const { PATH = '', HOME = '' } = process.env
  const npm = {
    npm_config_registry: 'http://127.0.0.1:9',
    npm_config_fetch_retries: '0',
    npm_config_cache: join(folder, 'cache'),
  }
  const options = { encoding: 'utf8', env: { PATH, HOME, ...npm, ...env } } as const
  const { status, stdout } = spawnSync('bash', [script], options)
  return { status, stdout, isTouched: existsSync(join(folder, 'node_modules')) }
}

it('npm test skips the Restate tests with one line, and downloads nothing', () => {
  const { status, stdout, isTouched } = run({})
  expect(stdout).toMatch(/^The Restate tests are skipped: .*--download.*\n$/)
  expect({ status, isTouched }).toEqual({ status: 0, isTouched: false })
})

it('CI=true downloads what the Restate tests need, and fails without it', () => {
  const { status, stdout, isTouched } = run({ CI: 'true' })
  expect(stdout).toContain('downloading its server')
  expect({ status, isTouched }).toEqual({ status: 1, isTouched: true })
})
