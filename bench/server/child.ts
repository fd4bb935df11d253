/**
 * The process of one server under test: `child.js NAME TOOLS [plain-last]`. Reports its address, and its resource usage on request.
 */

import type { Credential } from '../load/credential.ts'
import { PLAIN_LAST, type StartServer } from './start.ts'

export type ChildMessage =
  | {
      readonly kind: 'listening'
      readonly url: string
      readonly credential?: Credential
      readonly plain?: string
    }
  | {
      readonly kind: 'usage'
      readonly cpuMicros: number
      readonly rssBytes: number
      /** Objects and buffers; after a garbage collection, if the process can run one. */
      readonly heapBytes: number
    }

const SERVERS: Readonly<Record<string, () => Promise<{ start: StartServer }>>> = {
  rondo: () => import('./rondo.ts'),
  'rondo-plain': () => import('./rondo-plain.ts'),
  'rondo-log': () => import('./rondo-log.ts'),
  'rondo-log-pipe': () => import('./rondo-log.ts'),
  'rondo-spans': () => import('./rondo-spans.ts'),
  'rondo-oauth': () => protectedServers((all) => all.startSigned),
  'rondo-introspection': () => protectedServers((all) => all.startIntrospecting),
  'rondo-dpop': () => protectedServers((all) => all.startBound),
  'rondo-task': () => import('./rondo-task.ts'),
  official: () => import('./official.ts'),
  'official-session': () => import('./official-session.ts'),
  'by-hand': () => import('./by-hand.ts'),
  bare: () => import('./bare.ts'),
  gateway: () => import('./gateway.ts'),
  'gateway-holding': async () => ({ start: (await import('./gateway.ts')).startHolding }),
  readme: () => programs((all) => all.startReadme),
  'readme-inline': () => programs((all) => all.startReadmeInline),
  rules: () => programs((all) => all.startRules),
  'rules-inline': () => programs((all) => all.startRulesInline),
  survey: () => programs((all) => all.startSurvey),
  tmcp: () => peer('tmcp'),
  'mcp-handler': () => peer('mcp-handler'),
  fastmcp: () => peer('fastmcp'),
}

/** The program of a peer, which has its own dependencies (`bench/peers`) and is not compiled. */
function peer(name: string): Promise<{ start: StartServer }> {
  return import(new URL(`../../../peers/${name}.js`, import.meta.url).href)
}

type Programs = typeof import('./programs.ts')

async function programs(pick: (all: Programs) => StartServer): Promise<{ start: StartServer }> {
  return { start: pick(await import('./programs.ts')) }
}

type ProtectedServers = typeof import('./rondo-oauth.ts')

async function protectedServers(
  pick: (all: ProtectedServers) => StartServer,
): Promise<{ start: StartServer }> {
  return { start: pick(await import('./rondo-oauth.ts')) }
}

function tell(message: ChildMessage): void {
  process.send?.(message)
}

const [name = '', tools = '1', order] = process.argv.slice(2)
const load = SERVERS[name]
if (load === undefined) throw new TypeError(`Unknown server "${name}"`)
const { start } = await load()
const { url, credential, plain } = await start(Number(tools), order !== PLAIN_LAST)

process.on('message', () => {
  globalThis.gc?.()
  const { user, system } = process.cpuUsage()
  const { heapUsed, external, rss } = process.memoryUsage()
  tell({ kind: 'usage', cpuMicros: user + system, rssBytes: rss, heapBytes: heapUsed + external })
})
process.on('disconnect', () => process.exit(0))
tell({ kind: 'listening', url: url.href, credential, plain: plain?.href })
