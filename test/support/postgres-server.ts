/**
 * A real PostgreSQL for tests and benches: a fresh cluster in a temporary folder, on a free loopback port, run by a user
 * that is not root.
 */

import { execFile } from 'node:child_process'
import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

export interface TestPostgres {
  readonly connectionString: string
  /** Ends the server as a power cut would; what was committed is there after `start`. */
  crash(): Promise<void>
  start(): Promise<void>
  /** Ends the server and deletes the cluster. */
  stop(): Promise<void>
}

function findBinaries(): string | undefined {
  const root = '/usr/lib/postgresql'
  const versions = existsSync(root) ? readdirSync(root).sort((a, b) => Number(b) - Number(a)) : []
  const folders = [
    ...versions.map((version) => join(root, version, 'bin')),
    ...(process.env.PATH ?? '').split(':'),
  ]
  return folders.find((folder) => existsSync(join(folder, 'initdb')) && existsSync(join(folder, 'pg_ctl')))
}

const binaries = findBinaries()

export const hasPostgres: boolean = binaries !== undefined

/** PostgreSQL refuses to run as root, so another user has to run it. */
function findUser(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined
  const names = ['postgres', 'nobody']
  const lines = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
  const [, , uid, gid] = names.flatMap((name) => lines.filter(([login]) => login === name))[0] ?? []
  return { uid: Number(uid ?? 65534), gid: Number(gid ?? 65534) }
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}

export async function startPostgres({ fsync = true }: { fsync?: boolean } = {}): Promise<TestPostgres> {
  if (binaries === undefined) throw new Error('PostgreSQL is not installed: run scripts/ensure-postgres.sh')
  const user = findUser()
  const folder = mkdtempSync(join(tmpdir(), 'rondo-postgres-'))
  if (user) chownSync(folder, user.uid, user.gid)
  const data = join(folder, 'data')
  // Seconds to start or stop: only a server that hangs takes longer.
  const env = { ...process.env, LC_ALL: 'C', PGCTLTIMEOUT: '240' }
  const call = (command: string, ...args: string[]) =>
    run(join(binaries, command), args, { ...user, cwd: folder, env })
  await call('initdb', '-D', data, '-A', 'trust', '-U', 'rondo', '-E', 'UTF8', '--no-sync')
  // Only now, so that nobody takes the port before the server does.
  const port = await freePort()
  const settings = [
    `-p ${port}`,
    `-k ${folder}`,
    '-c listen_addresses=127.0.0.1',
    `-c fsync=${fsync ? 'on' : 'off'}`,
    '-c max_connections=80',
  ]
  const start = async () => {
    await call('pg_ctl', '-D', data, '-w', '-s', '-l', join(folder, 'log'), '-o', settings.join(' '), 'start')
  }
  const stop = async (mode: string) => {
    await call('pg_ctl', '-D', data, '-w', '-s', '-m', mode, 'stop')
  }
  await start()
  return {
    connectionString: `postgres://rondo@127.0.0.1:${port}/postgres`,
    crash: () => stop('immediate'),
    start,
    async stop() {
      await stop('immediate').catch(() => {})
      await rm(folder, { recursive: true })
    },
  }
}
