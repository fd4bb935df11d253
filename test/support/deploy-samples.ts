/** Reads the samples in `examples/deploy`, and says what is wrong with them, one sentence for each problem. */

import { spawnSync } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parse, parseAllDocuments } from 'yaml'

/** The time that a stopping instance lets calls finish (`graceMs`). */
const GRACE_MS = 10_000

interface Instruction {
  readonly name: string
  readonly text: string
}

/** The instructions of a Dockerfile, by stage. */
export function readDockerfile(text: string): Instruction[][] {
  const stages: Instruction[][] = []
  for (const line of text.replaceAll(/\\\n/g, ' ').split('\n')) {
    const [, name, rest] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? []
    if (name === undefined || rest === undefined) continue
    if (name === 'FROM') stages.push([])
    stages.at(-1)?.push({ name, text: rest })
  }
  return stages
}

export function textsOf(stage: readonly Instruction[] | undefined, name: string): string[] {
  return (stage ?? []).filter((one) => one.name === name).map((one) => one.text)
}

/** `NAME=value NAME=value`, as in an ENV instruction. */
export function readEnv(text: string): Record<string, string> {
  return Object.fromEntries(
    Array.from(text.matchAll(/(\w+)=(\S+)/g), ([, name = '', value = '']) => [name, value]),
  )
}

export function checkDockerfile(text: string, ignored: string): string[] {
  const stages = readDockerfile(text)
  const last = stages.at(-1)
  const problems: string[] = []
  if (stages.length < 2) problems.push('The image contains what built it: use a second stage')
  const user = textsOf(last, 'USER').at(-1)
  if (user === undefined || /^(root|0)\b/.test(user)) problems.push('The process runs as root')
  const [command = ''] = textsOf(last, 'CMD')
  if (!command.startsWith('["node",')) problems.push('A shell or npm is process 1, and node gets no SIGTERM')
  if (readEnv(textsOf(last, 'ENV').join(' ')).NODE_ENV !== 'production')
    problems.push('NODE_ENV is not production')
  const allowed = ignored.split('\n').flatMap((line) => (line.startsWith('!') ? [line.slice(1)] : []))
  const copied = stages
    .flatMap((stage) => textsOf(stage, 'COPY'))
    .filter((line) => !line.startsWith('--from'))
  for (const path of copied.flatMap((line) => line.split(' ').slice(0, -1))) {
    if (!allowed.includes(path)) problems.push(`.dockerignore leaves out ${path}`)
  }
  return problems
}

interface Service {
  readonly image?: string
  readonly build?: string
  readonly environment?: Record<string, string>
  readonly healthcheck?: { readonly test: readonly string[] }
  readonly depends_on?: Record<string, { readonly condition: string }>
  readonly stop_grace_period?: string
  readonly volumes?: readonly string[]
}

export interface Compose {
  readonly services: Readonly<Record<string, Service>>
  readonly volumes: Readonly<Record<string, unknown>>
}

export function readCompose(text: string): Compose {
  return parse(text, { merge: true, strict: true }) as Compose
}

export function checkCompose(text: string, nginx: string): string[] {
  const { services, volumes } = readCompose(text)
  const problems: string[] = []
  const instances = Object.entries(services).filter(([, service]) => service.build !== undefined)
  if (instances.length < 2) problems.push('There are fewer than two instances')
  for (const [name, { environment = {}, stop_grace_period = '10s', healthcheck }] of instances) {
    if (!nginx.includes(`server ${name}:3000 `)) problems.push(`The proxy does not know ${name}`)
    if (healthcheck === undefined) problems.push(`${name} has no health check`)
    const needed = Number(environment.DRAIN_DELAY_MS ?? 0) + GRACE_MS
    if (Number.parseInt(stop_grace_period, 10) * 1000 <= needed)
      problems.push(`${name} is killed while it drains`)
  }
  for (const [name, { depends_on = {}, volumes: mounts = [] }] of Object.entries(services)) {
    for (const [other, { condition }] of Object.entries(depends_on)) {
      if (services[other]?.healthcheck === undefined || condition !== 'service_healthy')
        problems.push(`${name} does not wait until ${other} is healthy`)
    }
    for (const mount of mounts.map((one) => one.split(':')[0] ?? '')) {
      if (!mount.startsWith('./') && !Object.hasOwn(volumes, mount))
        problems.push(`There is no volume ${mount}`)
    }
  }
  return problems
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string }
}

export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  // biome-ignore lint/suspicious/noExplicitAny: the shape depends on the kind, and the checks read a few places of it.
  readonly spec: any
}

export function readManifests(text: string): Manifest[] {
  return parseAllDocuments(text, { strict: true }).map((document) => {
    const [error] = document.errors
    if (error) throw error
    return document.toJS() as Manifest
  })
}

export function checkManifests(text: string): string[] {
  const manifests = readManifests(text)
  const deployment = manifests.find(({ kind }) => kind === 'Deployment')?.spec
  const pod = deployment.template
  const [container] = pod.spec.containers
  const problems: string[] = []
  const selectors: Record<string, string>[] = manifests.map(({ kind, spec }) =>
    kind === 'Service' ? spec.selector : spec.selector.matchLabels,
  )
  for (const [at, selector] of selectors.entries()) {
    const matches = Object.entries(selector).every(([label, value]) => pod.metadata.labels[label] === value)
    if (!matches) problems.push(`The ${manifests[at]?.kind} selects no pod`)
  }
  const ports: string[] = container.ports.map(({ name }: { name: string }) => name)
  const targets: string[] = manifests.flatMap(({ kind, spec }) =>
    kind === 'Service' ? spec.ports.map(({ targetPort }: { targetPort: string }) => targetPort) : [],
  )
  for (const port of targets)
    if (!ports.includes(port)) problems.push(`The Service has no port ${port} to send to`)
  const probes: Record<string, Probe> = {
    startup: container.startupProbe,
    liveness: container.livenessProbe,
    readiness: container.readinessProbe,
  }
  for (const [name, probe] of Object.entries(probes)) {
    if (!ports.includes(probe.httpGet.port)) problems.push(`The ${name} probe asks no port of the container`)
    const wanted = name === 'readiness' ? '/readyz' : '/healthz'
    if (probe.httpGet.path !== wanted) problems.push(`The ${name} probe must ask ${wanted}`)
  }
  const delay = container.env.find(({ name }: { name: string }) => name === 'DRAIN_DELAY_MS')?.value ?? 0
  if (pod.spec.terminationGracePeriodSeconds * 1000 <= Number(delay) + GRACE_MS)
    problems.push('A pod is killed while it drains')
  if (deployment.strategy.rollingUpdate.maxUnavailable !== 0)
    problems.push('A rollout has fewer instances than usual')
  if (pod.spec.securityContext.runAsNonRoot !== true) problems.push('A pod may run as root')
  return problems
}

const TYPED = resolve('test/dist/manifests')

/**
 * The objections of the types of the Kubernetes API to manifests: fields that do not exist, are missing or have another type. Takes
 * several texts, because the compiler takes its time, and returns a list for each.
 */
export function typeErrorsOf(texts: readonly string[]): string[][] {
  const folder = `${TYPED}-${process.pid}`
  mkdirSync(folder, { recursive: true })
  try {
    const files = texts.map((text, index) => {
      const lines = readManifests(text).map(({ apiVersion, kind, ...rest }, at) => {
        const module = `kubernetes-types/${apiVersion.includes('/') ? apiVersion : `core/${apiVersion}`}`
        const value = JSON.stringify({ apiVersion, kind, ...rest }, null, 1)
        return `export const m${at}: import('${module}').${kind} = ${value}`
      })
      writeFileSync(join(folder, `text${index}.ts`), lines.join('\n'))
      return `text${index}.ts`
    })
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'esnext', '--ignoreConfig']
    const compiler = resolve('node_modules/.bin/tsc')
    const more = ['--moduleResolution', 'bundler', '--types', '', ...files]
    const { stdout, stderr } = spawnSync(compiler, [...options, ...more], { cwd: folder, encoding: 'utf8' })
    if (stderr !== '') throw new Error(stderr)
    const lines = stdout.split('\n').filter((line) => line.includes(' error TS'))
    const foreign = lines.filter((line) => !/^text\d+\.ts\(/.test(line))
    if (foreign.length > 0) throw new Error(foreign.join('\n'))
    return files.map((file) => lines.filter((line) => line.startsWith(`${file}(`)))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Names of the variables that the manifests, the compose file and the unit set. */
export function variablesOf(compose: string, manifests: string, unit: string): Set<string> {
  const services = Object.values(readCompose(compose).services).filter(({ build }) => build !== undefined)
  const pods = readManifests(manifests).flatMap(({ kind, spec }) =>
    kind === 'Deployment'
      ? spec.template.spec.containers[0].env.map(({ name }: { name: string }) => name)
      : [],
  )
  const units = unit.split('\n').filter((line) => line.startsWith('Environment='))
  return new Set([
    ...services.flatMap(({ environment = {} }) => Object.keys(environment)),
    ...pods,
    ...units.flatMap((line) => Object.keys(readEnv(line.replace('Environment=', '')))),
  ])
}
