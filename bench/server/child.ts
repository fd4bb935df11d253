/**
 * The process of one server under test: `child.js NAME TOOLS`. Tells its address, and what it has used whenever it is
 * asked to.
 */

import type { StartServer } from './start.ts'

export type ChildMessage =
  | { readonly kind: 'listening'; readonly url: string }
  | { readonly kind: 'usage'; readonly cpuMicros: number; readonly rssBytes: number }

const SERVERS: Readonly<Record<string, () => Promise<{ start: StartServer }>>> = {
  rondo: () => import('./rondo.ts'),
  official: () => import('./official.ts'),
  bare: () => import('./bare.ts'),
}

function tell(message: ChildMessage): void {
  process.send?.(message)
}

const [name = '', tools = '1'] = process.argv.slice(2)
const load = SERVERS[name]
if (load === undefined) throw new TypeError(`There is no server "${name}" to bench`)
const { start } = await load()
const { url } = await start(Number(tools))

process.on('message', () => {
  const { user, system } = process.cpuUsage()
  tell({ kind: 'usage', cpuMicros: user + system, rssBytes: process.memoryUsage.rss() })
})
process.on('disconnect', () => process.exit(0))
tell({ kind: 'listening', url: url.href })
