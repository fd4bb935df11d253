/**
 * A project as `npm create rondo` makes it, from the packed tarballs. Its dependencies are linked to the
 * installed ones, so no network is needed. Needs the build.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'

export interface Ran {
  readonly status: number | null
  readonly output: string
}

export interface Creator {
  /** A temporary folder, in which the commands run. */
  readonly folder: string
  /** The package file of rondo. */
  readonly tarball: string
  /** Runs `create-rondo`, in `folder` unless told otherwise. */
  create(args: readonly string[], cwd?: string): Ran
  /** Creates a project with everything installed; returns its folder. */
  project(name: string): string
  remove(): void
}

export function run(program: string, args: readonly string[], cwd: string): Ran {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd, encoding: 'utf8', timeout: 600_000 })
  return { status, output: `${stdout}${stderr}` }
}

function unpack(tarball: string, folder: string): void {
  mkdirSync(folder, { recursive: true })
  execFileSync('tar', ['-xzf', tarball, '--strip-components=1', '-C', folder])
}

/** Installs what the manifest names, as npm would, from what is installed here. */
function install(folder: string): void {
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const home = join(folder, 'node_modules')
  const given: Record<string, string> = { ...manifest.dependencies, ...manifest.devDependencies }
  const ours = ['rondo', '@rondo/cli', '@rondo/gateway']
  for (const name of ours) unpack(join(folder, given[name]?.replace('file:', '') ?? ''), join(home, name))
  const { dependencies } = JSON.parse(readFileSync(join(home, 'rondo/package.json'), 'utf8'))
  const names = Object.keys({ ...given, ...dependencies })
  for (const name of names.filter((one) => !ours.includes(one))) {
    mkdirSync(dirname(join(home, name)), { recursive: true })
    symlinkSync(realpathSync(join('node_modules', name)), join(home, name))
  }
  mkdirSync(join(home, '.bin'))
  for (const name of ['tsc', 'vitest', 'tsx']) {
    symlinkSync(realpathSync(resolve('node_modules/.bin', name)), join(home, '.bin', name))
  }
}

export function createCreator(): Creator {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-create-'))
  const pack = (source: string): string => {
    const args = ['pack', '--json', '--ignore-scripts', '--offline', '--pack-destination', folder]
    const json = execFileSync('npm', args, {
      cwd: source,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    return join(folder, (JSON.parse(json) as [{ filename: string }])[0].filename)
  }
  const tarball = pack('packages/rondo')
  // `create-rondo` expects them beside the other one.
  pack('packages/cli')
  pack('packages/gateway')
  unpack(pack('packages/create-rondo'), join(folder, 'create'))
  const create: Creator['create'] = (args, cwd = folder) =>
    run(process.execPath, [join(folder, 'create/index.js'), ...args], cwd)
  return {
    folder,
    tarball,
    create,
    project(name) {
      const { status, output } = create([name, '--rondo', tarball])
      if (status !== 0) throw new Error(output)
      install(join(folder, name))
      return join(folder, name)
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}
