import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'

const run = promisify(execFile)

/** Imports the entries in a process of its own and says which packages came with them. */
async function packagesOf(...entries: string[]): Promise<string[]> {
  const script = `
    import { createRequire } from 'node:module'
    for (const entry of ${JSON.stringify(entries)}) await import(entry)
    const loaded = Object.keys(createRequire(import.meta.url).cache)
    console.log(JSON.stringify(loaded.map((path) => path.split('node_modules/').at(-1))))`
  const { stdout } = await run(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script])
  const files = JSON.parse(stdout.trim().split('\n').at(-1) ?? '[]') as string[]
  return files.map((file) => file.split('/')[0] ?? '')
}

it('T24 no entry loads a database driver before a store is used', async () => {
  const entries = ['index', 'sqlite', 'postgres'].map(
    (name) => new URL(`../${name}.ts`, import.meta.url).href,
  )
  const packages = await packagesOf(...entries)
  expect(packages).not.toContain('pg')
  expect(packages).not.toContain('libsql')
  expect(packages).not.toContain('@libsql')
})

it('control: the check detects a driver that was loaded', async () => {
  expect(await packagesOf(import.meta.resolve('pg'))).toContain('pg')
})
