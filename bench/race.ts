/**
 * Servers that take turns, round by round, on the same requests, after a warm-up of each. What is counted is the CPU time of the
 * server process.
 */

import type { Settings } from './bench.ts'
import { drive, type Exchange } from './load/drive.ts'
import type { ServerProcess } from './server/spawn-server.ts'

export interface Effort {
  readonly warmUp: number
  readonly rounds: number
  readonly requests: number
}

/** The exchange with an index, of which there are as many as are asked for. */
export type Exchanges = (index: number) => Exchange

export interface Racer<Name extends string, Case extends string> {
  readonly server: ServerProcess<Name>
  readonly exchanges: Readonly<Record<Case, Exchanges>>
}

/** CPU time of one request in microseconds by case and server, one figure per round. */
export type Costs<Name extends string, Case extends string> = Readonly<Record<Case, Record<Name, number[]>>>

export async function race<Name extends string, Case extends string>(
  label: string,
  racers: readonly Racer<Name, Case>[],
  cases: readonly Case[],
  effort: Effort,
  { progress }: Pick<Settings, 'progress'>,
): Promise<Costs<Name, Case>> {
  const none = (): Record<Name, number[]> =>
    Object.fromEntries(racers.map(({ server }) => [server.name, []])) as unknown as Record<Name, number[]>
  const costs = Object.fromEntries(cases.map((one) => [one, none()])) as Record<Case, Record<Name, number[]>>
  progress(`${label}: warming up`)
  for (const { server, exchanges } of racers) {
    for (const one of cases) await drive(server.url, effort.warmUp, exchanges[one])
  }
  for (let round = 0; round < effort.rounds; round++) {
    progress(`${label}: round ${round + 1} of ${effort.rounds}`)
    for (const one of cases) {
      for (const { server, exchanges } of rotated(racers, round)) {
        costs[one][server.name].push(await costOf(server, exchanges[one], effort.requests))
      }
    }
  }
  return costs
}

async function costOf(
  server: ServerProcess<string>,
  exchanges: Exchanges,
  requests: number,
): Promise<number> {
  let before = 0
  await drive(server.url, requests, exchanges, async () => {
    before = (await server.usage()).cpuMicros
  })
  return ((await server.usage()).cpuMicros - before) / requests
}

/** Rotates the order, so that no subject always goes first. */
function rotated<T>(list: readonly T[], by: number): readonly T[] {
  const first = by % list.length
  return [...list.slice(first), ...list.slice(0, first)]
}
