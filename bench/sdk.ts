/**
 * The cost that `rondo/sdk` adds to a program that imports the official server anyway: CPU time of one fresh process after the other,
 * first for the import, then for what the first call would otherwise load.
 */

import { spawnSync } from 'node:child_process'
import type { RunBench } from './bench.ts'
import { fixed, median } from './stat.ts'

/** At most, in ms of CPU. */
const BUDGET_MS = 10

interface Cost {
  readonly server: number
  readonly sdk: number
  readonly ready: number
}

const SCRIPT = `
  const cost = async (act) => {
    const before = process.cpuUsage()
    const value = await act()
    const { user, system } = process.cpuUsage(before)
    return [value, (user + system) / 1e3]
  }
  const [, server] = await cost(() => import('@modelcontextprotocol/server'))
  const [{ createRondo, generateKey }, sdk] = await cost(() => import('rondo/sdk'))
  const rondo = createRondo({ audience: 'bench', keys: generateKey() })
  const [, ready] = await cost(() => rondo.ready())
  process.stdout.write(JSON.stringify({ server, sdk, ready }))
`

export const run: RunBench = async ({ quick, progress }) => {
  const rounds = quick ? 5 : 15
  const costs: Cost[] = []
  for (let round = 0; round < rounds; round++) {
    progress(`rondo/sdk: round ${round + 1} of ${rounds}`)
    costs.push(importOnce())
  }
  const of = (name: keyof Cost): string => fixed(median(costs.map((cost) => cost[name])), 1)
  const table = {
    title: 'rondo/sdk beside the official server, in a fresh process',
    mark: 'sdk',
    columns: ['what', 'CPU ms', 'at most'],
    rows: [
      ['importing the official server', of('server'), ''],
      ['importing rondo/sdk after it', of('sdk'), String(BUDGET_MS)],
      ['rondo.ready(), else the first call', of('ready'), ''],
    ],
  }
  return { tables: [table], data: { budgetMs: BUDGET_MS, costs } }
}

function importOnce(): Cost {
  const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', SCRIPT], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (status !== 0) throw new Error('Importing rondo/sdk failed')
  return JSON.parse(stdout) as Cost
}
