/** A real nginx with the configuration of `examples/deploy`, on ports of this machine. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { it, vi } from 'vitest'

/** A program of the machine that tests use if it is there. Without it they are skipped, with a warning. */
export function withTool(name: string): { it: typeof it.skip; path: string } {
  const found = spawnSync('sh', ['-c', `PATH="$PATH:/usr/sbin" command -v ${name}`], { encoding: 'utf8' })
  const path = found.stdout.trim()
  if (path === '')
    console.warn(
      `\n*** SKIPPED: ${name} is not installed, so its checks of examples/deploy did not run ***\n`,
    )
  return { path, it: path === '' ? it.skip : it }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

/**
 * The arguments with which nginx reads the sample, changed so that everything is on this machine and in one folder. TLS needs the
 * folder of the certificate; without it nginx speaks plain HTTP.
 */
export function nginxArguments(
  text: string,
  listen: number,
  [one, two, three]: readonly number[],
  tls?: string,
): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-nginx-'))
  if (tls !== undefined) symlinkSync(tls, join(folder, 'tls'))
  const upstreams = text
    .replace('one:3000', `127.0.0.1:${one}`)
    .replace('two:3000', `127.0.0.1:${two}`)
    .replace(
      /^ *server three:3000.*\n/m,
      three === undefined ? '' : `    server 127.0.0.1:${three} max_fails=0;\n`,
    )
  const local =
    tls === undefined
      ? upstreams.replace('listen 8443 ssl', `listen 127.0.0.1:${listen}`).replaceAll(/^ *ssl_.*\n/gm, '')
      : upstreams.replace('listen 8443', `listen 127.0.0.1:${listen}`)
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  )
  const http = `http {\n  access_log off;\n  ${paths.join('\n  ')}`
  const own = `daemon off;\nmaster_process off;\npid ${folder}/pid;\nerror_log ${folder}/error.log;\n`
  writeFileSync(join(folder, 'nginx.conf'), own + local.replace('http {', http))
  return ['-e', `${folder}/error.log`, '-c', join(folder, 'nginx.conf')]
}

export interface Nginx {
  readonly url: URL
  stop(): Promise<void>
}

/** Starts nginx in front of two ports, and waits until it responds. */
export async function startNginx(path: string, text: string, ports: readonly number[]): Promise<Nginx> {
  const port = await freePort()
  const child = spawn(path, nginxArguments(text, port, ports), { stdio: 'ignore' })
  const ended = once(child, 'exit')
  const url = new URL(`http://localhost:${port}`)
  const responds = () =>
    fetch(new URL('/elsewhere', url)).then(
      ({ status }) => status === 404,
      () => false,
    )
  await vi.waitUntil(responds, { timeout: 120_000, interval: 50 })
  return {
    url,
    async stop() {
      child.kill('SIGTERM')
      await ended
    },
  }
}
