/**
 * The program of another checkout, to be measured in the same run: the benches of this one, with the packages that were built
 * there, so that both do the same work.
 */

import { cp, mkdir, mkdtemp, readdir, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

export interface Before {
  /** A file of the compiled benches, to start a process with: `task/child.js`. */
  file(path: string): string
  remove(): Promise<void>
}

/** Modules that import `rondo` from the folder get the build of the checkout, and everything else from here. */
export async function linkCheckout(checkout: string): Promise<Before> {
  const folder = await mkdtemp(join(tmpdir(), 'rondo-before-'))
  const modules = join(folder, 'node_modules')
  await cp('bench/dist', join(folder, 'dist'), { recursive: true })
  await cp('package.json', join(folder, 'package.json'))
  await mkdir(join(modules, '@rondo'), { recursive: true })
  const ours = await readdir('node_modules')
  for (const name of ours.filter((one) => !['rondo', '@rondo'].includes(one) && !one.startsWith('.')))
    await symlink(resolve('node_modules', name), join(modules, name))
  for (const name of ['rondo', '@rondo/store-kit', '@rondo/restate'])
    await symlink(resolve(checkout, 'packages', name.replace('@rondo/', '')), join(modules, name))
  return {
    file: (path) => join(folder, 'dist/bench', path),
    remove: () => rm(folder, { recursive: true, force: true }),
  }
}
