import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createSqliteStore } from 'rondo/sqlite'
import { startWith } from './rondo.ts'
import type { StartServer } from './start.ts'

/** Tasks in a file that is deleted with the process. */
export const start: StartServer = (tools) => {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-bench-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const store = createSqliteStore({ file: join(folder, 'tasks.db') })
  return startWith(tools, { store, tasks: { maxOpen: 1_000_000 } }, 'auto')
}
