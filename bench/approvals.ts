/** The cost of an inbox beside 100,000 open requests: CPU of a page, and memory that open requests hold. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createApprovals } from '@rondo/approvals'
import { createServer, generateKey } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'

const OPEN = Number(process.env.OPEN ?? 100_000)
const VISITS = 500
const folder = mkdtempSync(join(tmpdir(), 'rondo-approvals-'))
const store = createSqliteStore({ file: join(folder, 'approvals.db') })
const server = createServer({
  name: 'bench',
  version: '1.0.0',
  store,
  log: () => {},
  keys: generateKey('k1'),
})
const approvals = createApprovals({
  url: 'http://127.0.0.1:3000/approvals',
  login: () => ({ kind: 'login', issuer: 'https://login.example', subject: 'ann' }),
  groups: () => ['ann'],
  pollMs: 3_600_000,
})
// There are no tasks behind these requests: without this, they would be withdrawn after a minute.
server.use({
  ...approvals,
  attach: (host) => approvals.attach?.({ ...host, hook: async () => ({ kind: 'open' }) }),
})

async function open(i: number): Promise<void> {
  await approvals.approver?.open({
    id: `request-${i}`,
    attempt: 1,
    hook: `hook-${i}`,
    flow: `flow-${i}`,
    key: 'deploy',
    tool: 'deploy',
    args: { version: String(i) },
    caller: { issuer: 'https://login.example', subject: 'erin' },
    from: ['managers'],
    message: `Deploy ${i}?`,
    details: { version: String(i) },
    until: Date.now() + 86_400_000,
    quorum: 1,
    denials: 1,
    allowSelf: false,
    passNote: false,
  })
}

function heap(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

await open(0)
const before = heap()
for (let i = 1; i < OPEN; i += 256)
  await Promise.all(Array.from({ length: Math.min(256, OPEN - i) }, (_, j) => open(i + j)))
const held = heap() - before
const times: number[] = []
for (let i = 0; i < VISITS; i++) {
  const began = process.cpuUsage()
  const response = await approvals.fetch(new Request('http://127.0.0.1:3000/approvals'))
  const page = await response.text()
  if (!page.includes('Deploy 0?')) throw new Error('The inbox is empty')
  const { user, system } = process.cpuUsage(began)
  times.push((user + system) / 1000)
}
times.sort((a, b) => a - b)
const at = (share: number): string => `${times[Math.floor(times.length * share)]?.toFixed(1)} ms`
console.log(
  `${OPEN} open requests: inbox p50 ${at(0.5)}, p99 ${at(0.99)} of CPU; heap held ${(held / OPEN).toFixed(1)} bytes each`,
)
await server.close()
rmSync(folder, { recursive: true })
