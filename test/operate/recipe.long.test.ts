/**
 * The recipe of docs/guide/16-deploy.md, with its own files and commands: three instances, PostgreSQL, nginx with TLS, OAuth and
 * metrics. Only the container engine is missing: processes run what the image would run, and ports are free ones of this machine.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { get } from 'node:https'
import { join, resolve } from 'node:path'
import { text as readText } from 'node:stream/consumers'
import { generateKey } from 'rondo'
import { afterAll, beforeAll, expect, vi } from 'vitest'
import { type AuthorizationServer, startAuthorizationServer } from '../support/authorization-server.ts'
import { type Creator, createCreator, run } from '../support/created-project.ts'
import { readCompose, readDockerfile, readEnv, textsOf } from '../support/deploy-samples.ts'
import { freePort, nginxArguments, withTool } from '../support/nginx.ts'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'

const sample = (name: string): string => readFileSync(`examples/deploy/${name}`, 'utf8')
const nginx = withTool('nginx')
const PAGE = 'docs/guide/16-deploy.md'
const TRANSCRIPT = /(?<=<!-- transcript of check.sh -->\n```text\n)[^`]*/
/** What the page shows of `check.sh`. With RONDO_FILL=1 the test writes it instead of comparing it. */
const transcript = (): string | undefined => TRANSCRIPT.exec(readFileSync(PAGE, 'utf8'))?.[0]

describePostgres('the recipe of the deploy page', () => {
  const children: ChildProcess[] = []
  let creator: Creator
  let postgres: TestPostgres
  let issuer: AuthorizationServer
  let project: string

  beforeAll(async () => {
    postgres = await startPostgres({ fsync: false })
    issuer = await startAuthorizationServer({ scopes: 'tools' })
    creator = createCreator()
    project = creator.project('my-server')
    const modules = join(project, 'node_modules')
    mkdirSync(join(modules, '@opentelemetry'))
    for (const name of [
      'jose',
      ...['api', 'sdk-metrics', 'exporter-prometheus'].map((one) => `@opentelemetry/${one}`),
    ])
      symlinkSync(realpathSync(join('node_modules', name)), join(modules, name))
    symlinkSync(join(modules, '@rondo/cli/bin/rondo.js'), join(modules, '.bin/rondo'))
    copyFileSync('examples/deploy/app.ts', join(project, 'src/app.ts'))
    expect(run('npm', ['run', 'build'], project)).toMatchObject({ status: 0 })
    expect(run('sh', ['-ec', sample('certificate.sh')], project)).toMatchObject({ status: 0 })
  })

  afterAll(async () => {
    for (const child of children) child.kill('SIGKILL')
    creator?.remove()
    await issuer?.close()
    await postgres?.stop()
  })

  /** Starts the fleet, each instance with its own ring of keys or all with one. */
  async function start(rings: readonly string[]) {
    const port = await freePort()
    const here = (text: string): string => text.replaceAll('8443', String(port))
    const asOnPage = (text: string): string =>
      text.replaceAll(issuer.issuer, 'https://login.example.com').replaceAll(`:${port}/`, ':8443/')
    const [, image] = readDockerfile(sample('Dockerfile'))
    const [, ...args] = JSON.parse(textsOf(image, 'CMD')[0] ?? '[]') as string[]
    const services = readCompose(here(sample('compose.yaml'))).services
    const names = ['one', 'two', 'three']
    const instances = await Promise.all(
      names.map(async (name, at) => {
        const own = { port: await freePort(), metrics: await freePort() }
        const env = {
          PATH: process.env.PATH,
          ...readEnv(textsOf(image, 'ENV').join(' ')),
          ...services[name]?.environment,
          HOST: '127.0.0.1',
          PORT: String(own.port),
          METRICS_PORT: String(own.metrics),
          RONDO_KEYS: rings[at],
          DATABASE_URL: postgres.connectionString,
          ISSUER: issuer.issuer,
        }
        const child = spawn(process.execPath, args, {
          cwd: project,
          env,
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        children.push(child)
        await once(child.stdout, 'data')
        return { ...own, child }
      }),
    )
    const ports = instances.map((one) => one.port)
    const proxy = spawn(
      nginx.path,
      nginxArguments(sample('nginx.conf'), port, ports, resolve(project, 'tls')),
      { stdio: 'ignore' },
    )
    children.push(proxy)
    const url = `https://localhost:${port}`
    const ca = readFileSync(join(project, 'tls/cert.pem'))
    const statusOf = (path: string): Promise<number | undefined> =>
      new Promise((done) => {
        get(new URL(path, url), { ca }, (response) => {
          response.resume()
          done(response.statusCode)
        }).on('error', () => done(undefined))
      })
    await vi.waitUntil(async () => (await statusOf('/elsewhere')) === 404, { timeout: 120_000 })
    return {
      statusOf,
      /** The line of `check.sh`, with a token for this resource. */
      async check() {
        const { access_token } = await issuer.robot({ scope: 'tools', resource: `${url}/mcp` })
        const child = spawn('sh', ['-ec', here(sample('check.sh'))], {
          cwd: project,
          env: {
            PATH: process.env.PATH,
            HOME: project,
            ACCESS_TOKEN: access_token,
            // npx would ask the registry for newer versions of npm.
            npm_config_offline: 'true',
            npm_config_update_notifier: 'false',
          },
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        // Not synchronously: the authorization server runs in this process.
        const [stdout, [status]] = await Promise.all([readText(child.stdout), once(child, 'exit')])
        return { status, output: asOnPage(stdout) }
      },
      metrics: () =>
        Promise.all(
          instances.map(async (one) => (await fetch(`http://127.0.0.1:${one.metrics}/metrics`)).text()),
        ),
      async stop() {
        const exits = instances.map(({ child }) => once(child, 'exit'))
        for (const { child } of instances) child.kill('SIGTERM')
        expect(await Promise.all(exits)).toEqual(instances.map(() => [0, null]))
        proxy.kill('SIGTERM')
      },
    }
  }

  nginx.it('passes the examination through the proxy, and all instances take part', async () => {
    const key = generateKey('recipe')
    const fleet = await start([key, key, key])
    const { status, output } = await fleet.check()
    expect(status).toBe(0)
    if (process.env.RONDO_FILL === '1')
      writeFileSync(
        PAGE,
        readFileSync(PAGE, 'utf8').replace(TRANSCRIPT, () => output),
      )
    expect(output).toBe(transcript())
    for (const text of await fleet.metrics())
      expect(text).toMatch(/^mcp_server_operation_duration_count\{.*gen_ai_tool_name="resolve_bug"/m)
    expect(await fleet.statusOf('/.well-known/oauth-protected-resource/mcp')).toBe(200)
    expect([await fleet.statusOf('/readyz'), await fleet.statusOf('/metrics')]).toEqual([404, 404])
    await fleet.stop()
  })

  nginx.it('fails the examination if the instances have different keys', async () => {
    const fleet = await start(['recipe', 'recipe', 'recipe'].map((name) => generateKey(name)))
    const { status, output } = await fleet.check()
    expect(status).toBe(1)
    expect(output).not.toBe(transcript())
    expect(output).toMatch(/^fail +state-no +a genuine state is refused/m)
    await fleet.stop()
  })
})
