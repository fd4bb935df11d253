/**
 * A real Restate for tests and benches: one node or several, in a temporary folder, on free loopback ports, with a key with
 * which it signs its requests. Telemetry is off.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { createWriteStream, existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const PROGRAM = resolve(
  `node_modules/.cache/rondo-restate/node_modules/@restatedev/restate-server-${process.platform}-${process.arch}/bin/restate-server`,
)

export const hasRestate: boolean = existsSync(PROGRAM)

interface RestateNode {
  readonly ingress: string
  readonly admin: string
  readonly pid: number | undefined
  /** Ends the node as a power cut would. */
  kill(): Promise<void>
  start(): Promise<void>
}

export interface TestRestate {
  readonly nodes: readonly RestateNode[]
  readonly ingress: readonly string[]
  readonly admin: readonly string[]
  /** The public key of the requests that it sends. */
  readonly identityKey: string
  /** Ends all nodes and deletes their data. */
  stop(): Promise<void>
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const address = server.address()
  await new Promise((done) => server.close(done))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}

interface RestateOptions {
  readonly nodes?: number
  /** Settings of the server by name of the environment variable. */
  readonly env?: Readonly<Record<string, string>>
}

export async function startRestate({
  nodes: count = 1,
  env = {},
}: RestateOptions = {}): Promise<TestRestate> {
  if (!hasRestate) throw new Error('Restate is not installed: run scripts/ensure-restate.sh --download')
  const folder = mkdtempSync(join(tmpdir(), 'rondo-restate-'))
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const keyFile = join(folder, 'identity.pem')
  writeFileSync(keyFile, privateKey.export({ type: 'pkcs8', format: 'pem' }))
  const ports = await Promise.all(
    Array.from({ length: count }, async () => ({
      node: await freePort(),
      ingress: await freePort(),
      admin: await freePort(),
    })),
  )
  const peers = ports.map(({ node }) => `http://127.0.0.1:${node}/`)
  const shared = {
    RESTATE_DISABLE_TELEMETRY: 'true',
    RESTATE_BIND_IP: '127.0.0.1',
    RESTATE_LISTEN_MODE: 'tcp',
    RESTATE_CLUSTER_NAME: 'rondo-test',
    RESTATE_DEFAULT_NUM_PARTITIONS: '4',
    RESTATE_DEFAULT_REPLICATION: String(Math.min(count, 2)),
    RESTATE_REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE: keyFile,
    RESTATE_METADATA_CLIENT__ADDRESSES: JSON.stringify(peers),
    RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE: '256MB',
    RESTATE_LOG_DISABLE_ANSI_CODES: 'true',
    RESTATE_LOG_FILTER: 'warn',
    ...env,
  }
  const nodes = ports.map(({ node, ingress, admin }, i) =>
    createNode(folder, i, ingress, admin, {
      ...shared,
      RESTATE_AUTO_PROVISION: String(i === 0),
      RESTATE_NODE_NAME: `node-${i}`,
      RESTATE_BIND_PORT: String(node),
      RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}/`,
      RESTATE_INGRESS__BIND_PORT: String(ingress),
      RESTATE_ADMIN__BIND_PORT: String(admin),
      RESTATE_BASE_DIR: join(folder, `node-${i}`),
    }),
  )
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.kill()))
    await rm(folder, { recursive: true, force: true, maxRetries: 5 })
  }
  try {
    await Promise.all(nodes.map((node) => node.start()))
  } catch (error) {
    await stop()
    throw error
  }
  const raw = Buffer.from(publicKey.export({ format: 'jwk' }).x ?? '', 'base64url')
  return {
    nodes,
    ingress: nodes.map((node) => node.ingress),
    admin: nodes.map((node) => node.admin),
    identityKey: `publickeyv1_${base58(raw)}`,
    stop,
  }
}

function createNode(
  folder: string,
  index: number,
  ingress: number,
  admin: number,
  env: Readonly<Record<string, string>>,
): RestateNode {
  let child: ChildProcess | undefined
  const logFile = join(folder, `node-${index}.log`)
  const place = join(folder, `node-${index}`)
  mkdirSync(place)
  const start = async () => {
    const begun = spawn(PROGRAM, ['--no-logo'], {
      cwd: place,
      env: { PATH: process.env.PATH, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    child = begun
    const log = createWriteStream(logFile, { flags: 'a' })
    begun.stdout?.pipe(log, { end: false })
    begun.stderr?.pipe(log, { end: false })
    for (const path of [`http://127.0.0.1:${admin}/health`, `http://127.0.0.1:${ingress}/restate/health`])
      await untilOk(path, begun, logFile)
  }
  return {
    ingress: `http://127.0.0.1:${ingress}`,
    admin: `http://127.0.0.1:${admin}`,
    get pid() {
      return child?.pid
    },
    start,
    async kill() {
      const dying = child
      child = undefined
      if (dying === undefined || dying.exitCode !== null || dying.signalCode !== null) return
      const gone = new Promise((done) => dying.once('exit', done))
      dying.kill('SIGKILL')
      await gone
    },
  }
}

const START_MS = 120_000

async function untilOk(url: string, child: ChildProcess, logFile: string): Promise<void> {
  const end = performance.now() + START_MS
  for (;;) {
    const ok = await fetch(url).then(
      (response) => response.ok,
      () => false,
    )
    if (ok) return
    if (child.exitCode !== null || performance.now() > end)
      throw new Error(`Restate did not start (${url}):\n${readFileSync(logFile, 'utf8').slice(-4000)}`)
    await new Promise((done) => setTimeout(done, 50))
  }
}

const ALPHABET = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'

function base58(bytes: Buffer): string {
  let value = BigInt(`0x${bytes.toString('hex')}`)
  let text = ''
  for (; value > 0n; value /= 58n) text = (ALPHABET[Number(value % 58n)] ?? '') + text
  const zeros = bytes.findIndex((byte) => byte !== 0)
  return '1'.repeat(zeros < 0 ? bytes.length : zeros) + text
}
