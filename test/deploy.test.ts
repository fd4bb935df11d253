/**
 * The samples in `examples/deploy`, as far as they can be checked without a container engine: their syntax, what they promise
 * each other, and the commands of the image run without a container: two instances, PostgreSQL and a proxy.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build } from 'esbuild'
import { generateKey } from 'rondo'
import { type Answers, connect } from 'rondo/client'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { type Creator, createCreator, run } from './support/created-project.ts'
import {
  checkCompose,
  checkDockerfile,
  checkManifests,
  readCompose,
  readDockerfile,
  readEnv,
  textsOf,
  typeErrorsOf,
  variablesOf,
} from './support/deploy-samples.ts'
import { freePort, nginxArguments, startNginx, withTool } from './support/nginx.ts'
import { describePostgres } from './support/postgres.ts'
import { startPostgres, type TestPostgres } from './support/postgres-server.ts'
import { startRoundRobin } from './support/round-robin.ts'

const sample = (name: string): string => readFileSync(`examples/deploy/${name}`, 'utf8')
const scratch = mkdtempSync(join(tmpdir(), 'rondo-deploy-'))
let creator: Creator
beforeAll(() => {
  creator = createCreator()
})
afterAll(() => {
  creator?.remove()
  rmSync(scratch, { recursive: true, force: true })
})

describe('the samples', () => {
  const [dockerfile, ignore, compose, nginx, manifests, unit] = [
    'Dockerfile',
    '.dockerignore',
    'compose.yaml',
    'nginx.conf',
    'kubernetes.yaml',
    'my-server.service',
  ].map(sample) as [string, string, string, string, string, string]

  it('are consistent', () => {
    expect(checkDockerfile(dockerfile, ignore)).toEqual([])
    expect(checkCompose(compose, nginx)).toEqual([])
    expect(checkManifests(manifests)).toEqual([])
  })

  it.each([
    ['USER node', 'USER root', 'The process runs as root'],
    [
      'CMD ["node", "dist/main.js"]',
      'CMD npm start',
      'A shell or npm is process 1, and node gets no SIGTERM',
    ],
    ['COPY src ./src', 'COPY test ./test', '.dockerignore leaves out test'],
    ['NODE_ENV=production ', '', 'NODE_ENV is not production'],
  ])('Dockerfile: %j as %j is reported', (from, to, problem) => {
    expect(checkDockerfile(dockerfile.replace(from, to), ignore)).toEqual([problem])
  })

  it.each([
    ['stop_grace_period: 30s', 'stop_grace_period: 12s', 'one is killed while it drains'],
    ['two: *instance', 'four: *instance', 'The proxy does not know four'],
    [
      'condition: service_healthy',
      'condition: service_started',
      'one does not wait until postgres is healthy',
    ],
    ['- tasks:/var', '- task:/var', 'There is no volume task'],
  ])('compose.yaml: %j as %j is reported', (from, to, problem) => {
    expect(checkCompose(compose.replace(from, to), nginx)).toContain(problem)
  })

  it.each([
    ['path: /readyz', 'path: /healthz', 'The readiness probe must ask /readyz'],
    [
      'terminationGracePeriodSeconds: 30',
      'terminationGracePeriodSeconds: 20',
      'A pod is killed while it drains',
    ],
    ['selector:\n    app: my-server', 'selector:\n    app: other', 'The Service selects no pod'],
    ['targetPort: http', 'targetPort: https', 'The Service has no port https to send to'],
    ['maxUnavailable: 0', 'maxUnavailable: 1', 'A rollout has fewer instances than usual'],
  ])('kubernetes.yaml: %j as %j is reported', (from, to, problem) => {
    expect(checkManifests(manifests.replace(from, to))).toEqual([problem])
  })

  it('kubernetes.yaml has the fields of the Kubernetes API, with their types', () => {
    const wrong: readonly [from: string, to: string, problem: RegExp][] = [
      ['terminationGracePeriodSeconds', 'terminationGracePeriodSecond', /terminationGracePeriodSecond/],
      ['maxUnavailable: 0', 'maxUnavailable: [0]', /'number\[\]' is not assignable/],
      ['readinessProbe:', 'readyProbe:', /readyProbe/],
      ['runAsNonRoot: true', 'runAsNonRoot: "yes"', /'string' is not assignable to type 'boolean/],
      ['kind: PodDisruptionBudget', 'kind: PodDisruptionBudgets', /PodDisruptionBudgets/],
    ]
    for (const [from] of wrong) expect(manifests).toContain(from)
    const [right, ...others] = typeErrorsOf([
      manifests,
      ...wrong.map(([from, to]) => manifests.replace(from, to)),
    ])
    expect(right).toEqual([])
    for (const [at, [, , problem]] of wrong.entries()) expect(others[at]?.join('\n')).toMatch(problem)
  })

  it('report a YAML file that cannot be parsed', () => {
    expect(() => checkManifests(manifests.replace('spec:\n', 'spec: [\n'))).toThrow()
    expect(() => checkCompose(compose.replace('services:', 'services: ['), nginx)).toThrow()
  })

  it('set only variables that the template or the recipe reads', () => {
    const template = 'packages/create-rondo/template/src'
    const sources = [`${template}/app.ts`, `${template}/main.ts`, 'examples/deploy/app.ts']
    const read = sources.flatMap((path) => {
      const text = readFileSync(path, 'utf8')
      return /const \{([^}]+)\} =\s+process\.env/.exec(text)?.[1]?.match(/\w+/g) ?? []
    })
    read.push('PORT')
    const set = variablesOf(compose, manifests, unit)
    expect(set.size).toBeGreaterThan(4)
    expect([...set].filter((name) => !read.includes(name))).toEqual([])
  })

  it('alert on metrics that exist', () => {
    const table = /<!-- names METRIC -->([\s\S]*?)\n\n[^|]/.exec(
      readFileSync('docs/reference/telemetry.md', 'utf8'),
    )?.[1]
    const metrics = Array.from(table?.matchAll(/^\| `([\w.]+)`/gm) ?? [], ([, name = '']) =>
      name.replaceAll('.', '_'),
    )
    const unknown = (text: string): string[] => {
      const names = text.replaceAll(/ by \([^)]*\)/g, '').match(/\b(?:rondo|mcp)_\w+(?=[)[{])/g) ?? []
      expect(names.length).toBeGreaterThan(7)
      return names.filter((name) => !metrics.includes(name.replace(/_(?:total|bucket|count)$/, '')))
    }
    expect(unknown(sample('alerts.yaml'))).toEqual([])
    expect(unknown(sample('alerts.yaml').replace('tasks_due_age', 'tasks_due_ages'))).toEqual([
      'rondo_tasks_due_ages',
    ])
  })

  const systemd = withTool('systemd-analyze')
  systemd.it('systemd accepts the unit, and no broken one', () => {
    const verify = (text: string) => {
      const path = join(scratch, 'my-server.service')
      // The path of node is that of a usual installation.
      writeFileSync(path, text.replace('/usr/bin/node', process.execPath))
      const { status, output } = run(systemd.path, ['verify', '--man=no', path], scratch)
      return { status, complaints: output.split('\n').filter((line) => line.includes('my-server.service')) }
    }
    expect(verify(unit).complaints).toEqual([])
    expect(verify(unit.replace('TimeoutStopSec=30', 'TimeoutStopSec=soon')).complaints).not.toEqual([])
    expect(verify(unit.replace('DynamicUser=', 'DynamicUsr=')).complaints).not.toEqual([])
  })
})

const answers: Answers = {
  elicitation({ message }) {
    const publishes = message.startsWith('Publish')
    const content: Record<string, string | boolean> = publishes ? { confirm: true } : { resolution: 'Fixed' }
    return { action: 'accept', content }
  },
}

describePostgres('the commands of the image, without a container', () => {
  const children: ChildProcess[] = []
  const [build, image] = readDockerfile(sample('Dockerfile'))
  const { one } = readCompose(sample('compose.yaml')).services
  const keys = generateKey('deploy')
  const home = join(scratch, 'image')
  let postgres: TestPostgres

  beforeAll(async () => {
    postgres = await startPostgres({ fsync: false })
    const project = creator.project('app')
    const commands = textsOf(build, 'RUN')
    // These two need the registry, and would change the linked packages.
    const withoutNetwork = commands.filter((command) => !/^npm (ci|prune)/.test(command))
    expect(withoutNetwork).toEqual(['npm run build'])
    for (const command of withoutNetwork) {
      const [program = '', ...args] = command.split(' ')
      expect(run(program, args, project)).toMatchObject({ status: 0 })
    }
    // The second stage.
    mkdirSync(home)
    for (const line of textsOf(image, 'COPY')) {
      const [, path = '', to = ''] = /^--from=build \/app\/(\S+) (\S+)$/.exec(line) ?? []
      if (path === 'node_modules') symlinkSync(join(project, path), join(home, path))
      else cpSync(join(project, path), join(home, to === './' ? path : to), { recursive: true })
    }
  })

  afterAll(async () => {
    for (const child of children) child.kill('SIGKILL')
    await postgres?.stop()
  })

  /** Runs CMD with the environment of the Dockerfile and of the compose file, on loopback. */
  async function start(more: Record<string, string> = {}) {
    const port = await freePort()
    const [program = '', ...args] = JSON.parse(textsOf(image, 'CMD')[0] ?? '[]') as string[]
    const env = {
      PATH: process.env.PATH,
      ...readEnv(textsOf(image, 'ENV').join(' ')),
      ...one?.environment,
      HOST: '127.0.0.1',
      PORT: String(port),
      RONDO_KEYS: keys,
      DATABASE_URL: postgres.connectionString,
      ...more,
    }
    expect(program).toBe('node')
    const child = spawn(process.execPath, args, { cwd: home, env, stdio: ['ignore', 'pipe', 'ignore'] })
    children.push(child)
    const exit = once(child, 'exit').then(([code, signal]) => ({ code, signal }))
    const [line] = await once(child.stdout, 'data')
    expect(String(line)).toContain(`Serving http://127.0.0.1:${port}/mcp`)
    return { child, exit, port, url: new URL(`http://127.0.0.1:${port}`) }
  }

  const statusOf = async (url: URL, path: string): Promise<number> =>
    fetch(new URL(path, url)).then(
      (response) => response.status,
      () => 0,
    )

  /** Both instances serve; one is told to stop in the middle of a task, and nothing is lost. */
  async function deploy(proxy: string, instances: Awaited<ReturnType<typeof start>>[]): Promise<void> {
    const client = await connect(`${proxy}/mcp`, { answers })
    for (const id of [1, 2, 3]) {
      const { content } = await client.callTool('resolve_bug', { id })
      expect(content).toMatchObject([{ text: `Bug #${id} resolved as Fixed.` }])
    }
    let told = false
    const onTask = (): void => {
      if (!told) instances[0]?.child.kill('SIGTERM')
      told = true
    }
    const report = await client.callTool('report', { year: 2026 }, { onTask })
    expect(told).toBe(true)
    expect(report.content).toMatchObject([{ text: 'Published 78 bugs of 2026.' }])
    expect(await instances[0]?.exit).toEqual({ code: 0, signal: null })
    for (const id of [4, 5]) {
      const { content } = await client.callTool('resolve_bug', { id })
      expect(content).toMatchObject([{ text: `Bug #${id} resolved as Fixed.` }])
    }
    await client.close()
    instances[1]?.child.kill('SIGTERM')
    expect(await instances[1]?.exit).toEqual({ code: 0, signal: null })
  }

  const nginx = withTool('nginx')
  nginx.it('nginx accepts its configuration, and no broken one', () => {
    const check = (text: string) =>
      run(nginx.path, ['-t', ...nginxArguments(text, 18080, [18081, 18082])], scratch)
    expect(check(sample('nginx.conf'))).toMatchObject({ status: 0 })
    expect(check(sample('nginx.conf').replace('http_503', 'http_5o3')).status).not.toBe(0)
  })

  nginx.it('two instances behind nginx: calls and tasks continue while one is stopped', async () => {
    const instances = [await start({ DRAIN_DELAY_MS: '200' }), await start()]
    const proxy = await startNginx(
      nginx.path,
      sample('nginx.conf'),
      instances.map(({ port }) => port),
    )
    const { url } = proxy
    // Probes are for the platform: the proxy does not pass them on.
    expect(await statusOf(url, '/readyz')).toBe(404)
    await deploy(url.origin, instances)
    await proxy.stop()
  })

  it('two instances behind a round robin share the calls and the tasks', async () => {
    const instances = [await start({ DRAIN_DELAY_MS: '200' }), await start({ DRAIN_DELAY_MS: '200' })]
    const targets = instances.map(({ url }) => url)
    const proxy = await startRoundRobin(targets)
    const client = await connect(new URL('/mcp', proxy.url), { answers })
    const { content } = await client.callTool('resolve_bug', { id: 1 })
    expect(content).toMatchObject([{ text: 'Bug #1 resolved as Fixed.' }])
    const report = await client.callTool('report', { year: 2026 })
    expect(report.content).toMatchObject([{ text: 'Published 78 bugs of 2026.' }])
    expect(Math.min(...proxy.counts)).toBeGreaterThan(1)
    await client.close()
    await proxy.close()
    for (const { child, exit } of instances) {
      child.kill('SIGTERM')
      expect(await exit).toEqual({ code: 0, signal: null })
    }
  })

  it('the probes follow the life of an instance, and the health check of the compose file agrees', async () => {
    const { child, exit, url, port } = await start({ DRAIN_DELAY_MS: '20000' })
    const [, program = '', ...args] = (one?.healthcheck?.test ?? []).map((word) =>
      word.replaceAll('3000', String(port)),
    )
    expect(program).toBe('node')
    const healthy = () => run(process.execPath, args, scratch).status
    expect([await statusOf(url, '/healthz'), await statusOf(url, '/readyz'), healthy()]).toEqual([
      200, 200, 0,
    ])
    child.kill('SIGTERM')
    await expect.poll(() => statusOf(url, '/readyz')).toBe(503)
    expect([await statusOf(url, '/healthz'), healthy()]).toEqual([200, 1])
    // The second signal ends it at once.
    child.kill('SIGTERM')
    expect(await exit).toEqual({ code: 130, signal: null })
    expect([await statusOf(url, '/healthz'), healthy()]).toEqual([0, 1])
  })
})

/** Modules of Node that Workers have with `nodejs_compat`, as far as Rondo uses them. */
const IN_WORKERS = [
  'async_hooks',
  'buffer',
  'crypto',
  'fs',
  'fs/promises',
  'http',
  'net',
  'os',
  'perf_hooks',
  'stream',
  'stream/promises',
  'timers/promises',
].map((name) => `node:${name}`)

/** The shortest program for Workers. */
const GLOBAL = `
  import { createServer } from 'rondo'
  const server = createServer({ name: 'global', version: '1.0.0', allowedHosts: ['127.0.0.1'] })
  server.tool('go', {}, async (_args, ctx) => {
    const sure = await ctx.confirm('sure', 'Sure?')
    return String(await ctx.effect('save', async () => sure))
  })
  export default { fetch: server.fetch }
`

describe('the functions', () => {
  const names = ['worker', 'lambda', 'vercel']
  let project: string
  const keys = generateKey('functions')

  beforeAll(() => {
    project = creator.project('functions')
    for (const name of names) copyFileSync(`examples/deploy/${name}.ts`, join(project, `src/${name}.ts`))
    const { status, output } = run(resolve('node_modules/.bin/tsc'), ['-p', 'tsconfig.build.json'], project)
    expect(output).toBe('')
    expect(status).toBe(0)
  })
  const HOST = 'mcp.example.com'
  type Call = (request: Request) => Promise<Response>

  async function load(name: string): Promise<Call> {
    vi.stubEnv('RONDO_KEYS', keys)
    vi.stubEnv('ALLOWED_HOSTS', HOST)
    const module = await import(/* @vite-ignore */ pathToFileURL(join(project, `dist/${name}.js`)).href)
    vi.unstubAllEnvs()
    if (name === 'vercel') return module.POST
    if (name === 'worker') {
      return (request) => module.default.fetch(request, { RONDO_KEYS: keys, ALLOWED_HOSTS: HOST })
    }
    return async (request) => {
      const body = await request.text()
      const event = {
        rawPath: new URL(request.url).pathname,
        headers: { ...Object.fromEntries(request.headers), host: HOST },
        requestContext: { domainName: HOST, http: { method: request.method } },
        body: Buffer.from(body).toString('base64'),
        isBase64Encoded: true,
      }
      const { statusCode, headers, body: text } = await module.handler(event)
      return new Response(text, { status: statusCode, headers })
    }
  }

  it.each(names)('%s answers a call in rounds, without a store', async (name) => {
    const call = await load(name)
    // Workers do not have this method.
    const missing = vi.spyOn(AsyncLocalStorage.prototype, 'disable').mockImplementation(() => {
      throw new Error('asyncLocalStorage.disable() is not implemented')
    })
    onTestFinished(() => missing.mockRestore())
    const fetched = vi.fn((input: RequestInfo | URL, init?: RequestInit) => call(new Request(input, init)))
    const client = await connect(`https://${HOST}/mcp`, { answers, fetch: fetched })
    const { content } = await client.callTool('resolve_bug', { id: 7 })
    expect(content).toMatchObject([{ text: 'Bug #7 resolved as Fixed.' }])
    expect(fetched.mock.calls.length).toBeGreaterThan(1)
    await client.close()
    expect(missing).toHaveBeenCalled()
    expect((await call(new Request('https://evil.example/mcp', { method: 'POST', body: '{}' }))).status).toBe(
      name === 'lambda' ? 415 : 403,
    )
  })

  it('a server can be created while a module is loaded, where Workers have neither timers nor random numbers', () => {
    const program = `
      import crypto from 'node:crypto'
      import { syncBuiltinESMExports } from 'node:module'
      let loading = true
      const guard = (owner, name) => {
        const real = owner[name]
        owner[name] = (...args) => {
          if (loading) throw new Error('Disallowed operation called within global scope: ' + name)
          return real.apply(owner, args)
        }
      }
      for (const name of ['randomBytes', 'randomFillSync', 'randomUUID', 'randomInt']) guard(crypto, name)
      for (const name of ['setTimeout', 'setInterval', 'setImmediate', 'fetch']) guard(globalThis, name)
      syncBuiltinESMExports()
      const { default: worker } = await import('./global.js')
      loading = false
      const { connect } = await import('rondo/client')
      const client = await connect({ fetch: worker.fetch }, { answers: { elicitation: () => ({ action: 'accept', content: { confirm: true } }) } })
      console.log(client.protocolVersion, JSON.stringify((await client.callTool('go', {})).content))
    `
    writeFileSync(join(project, 'global.js'), GLOBAL)
    writeFileSync(join(project, 'guarded.js'), program)
    const { status, stdout, stderr } = spawnSync(process.execPath, ['guarded.js'], {
      cwd: project,
      encoding: 'utf8',
      env: { PATH: process.env.PATH, RONDO_KEYS: keys, NODE_ENV: 'production' },
    })
    expect([stdout, status === 0 ? '' : stderr]).toEqual(['2026-07-28 [{"type":"text","text":"true"}]\n', ''])
  })

  /** As `wrangler` bundles it. */
  const bundle = async (file = 'src/worker.ts') => {
    const { outputFiles, warnings, metafile } = await build({
      entryPoints: [join(project, file)],
      bundle: true,
      write: false,
      format: 'esm',
      platform: 'neutral',
      mainFields: ['module', 'main'],
      conditions: ['workerd', 'worker', 'browser'],
      external: ['node:*'],
      metafile: true,
      logLevel: 'silent',
    })
    const imports = Object.values(metafile.outputs).flatMap((output) => output.imports)
    const builtins = new Set(imports.map(({ path }) => path).filter((path) => path.startsWith('node:')))
    return { text: outputFiles[0]?.text ?? '', warnings, builtins: [...builtins] }
  }

  it('a project without optional packages can be bundled for Workers, with modules that these have', async () => {
    const { text, warnings, builtins } = await bundle()
    expect(text).toContain('resolve_bug')
    expect(warnings.map(({ text }) => text)).toEqual([])
    expect(builtins.filter((name) => !IN_WORKERS.includes(name))).toEqual([])
    expect(builtins).toContain('node:crypto')
  })

  const workerd = withTool('workerd')
  const serveWorker = async (file: string): Promise<string> => {
    const { text } = await bundle(file)
    const folder = mkdtempSync(join(scratch, 'workerd-'))
    writeFileSync(join(folder, 'worker.js'), text)
    const port = await freePort()
    const config = `using Workerd = import "/workerd/workerd.capnp";
      const config :Workerd.Config = (
        services = [(name = "main", worker = .worker)],
        sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")]);
      const worker :Workerd.Worker = (
        modules = [(name = "worker", esModule = embed "worker.js")],
        compatibilityDate = "2026-04-01", compatibilityFlags = ["nodejs_compat"],
        bindings = [(name = "RONDO_KEYS", text = "${keys}"), (name = "ALLOWED_HOSTS", text = "127.0.0.1")]);`
    writeFileSync(join(folder, 'config.capnp'), config)
    const child = spawn(workerd.path, ['serve', 'config.capnp'], { cwd: folder, stdio: 'ignore' })
    onTestFinished(() => void child.kill('SIGKILL'))
    const url = `http://127.0.0.1:${port}/mcp`
    await vi.waitUntil(() => fetch(url).catch(() => false), { timeout: 120_000, interval: 50 })
    return url
  }

  workerd.it(
    'a server that is created while its module is loaded runs in the runtime of Workers',
    async () => {
      writeFileSync(join(project, 'global.js'), GLOBAL)
      const confirm = { elicitation: () => ({ action: 'accept' as const, content: { confirm: true } }) }
      const client = await connect(await serveWorker('global.js'), { answers: confirm })
      expect(await client.callTool('go', {})).toMatchObject({ content: [{ text: 'true' }] })
      await client.close()
    },
  )

  workerd.it('the worker runs in the runtime of Workers', async () => {
    const url = await serveWorker('src/worker.ts')
    for (const mode of ['2026-07-28', '2025-11-25'] as const) {
      const client = await connect(url, { answers, mode })
      // At once: nothing of one request may wait for another.
      const results = await Promise.all([1, 2, 3, 4, 5].map((id) => client.callTool('resolve_bug', { id })))
      expect(results.map(({ content }) => content)).toMatchObject(
        [1, 2, 3, 4, 5].map((id) => [{ text: `Bug #${id} resolved as Fixed.` }]),
      )
      await client.close()
    }
  })
})
