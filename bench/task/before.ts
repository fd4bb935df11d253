/**
 * The program of another checkout, to be measured in the same run: its sources, compiled with the benches of this one, so
 * that both do the same work.
 */

import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

export interface Before {
  /** The file to start a process with. */
  readonly child: string
  remove(): Promise<void>
}

export async function compileCheckout(checkout: string): Promise<Before> {
  const folder = await mkdtemp(join(tmpdir(), 'rondo-before-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  try {
    for (const path of ['src', 'package.json', 'tsconfig.json'])
      await cp(join(checkout, path), join(folder, path), { recursive: true })
    const isSource = (path: string) => !resolve(path).startsWith(resolve('bench/dist'))
    await cp('bench', join(folder, 'bench'), { recursive: true, filter: isSource })
    for (const path of ['tsconfig.bench.json', 'test/support/postgres-server.ts'])
      await cp(path, join(folder, path), { recursive: true })
    await symlink(resolve('node_modules'), join(folder, 'node_modules'))
    // Other benches may use what that checkout does not have: only the output counts.
    await run('npx', ['tsc', '-p', 'tsconfig.bench.json'], { cwd: folder }).catch(() => {})
    return { child: join(folder, 'bench/dist/bench/task/child.js'), remove }
  } catch (error) {
    await remove()
    throw new Error(`The checkout ${checkout} could not be compiled`, { cause: error })
  }
}
