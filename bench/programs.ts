/** Part of the core bench: what it costs to create schemas in the handler, and what each replayed question costs. */

import type { Settings, Table } from './bench.ts'
import { type Flow, playFlow, type Rounds } from './load/flow.ts'
import { type Costs, type Effort, type Exchanges, type Racer, race } from './race.ts'
import { type ProgramName, spawnServer } from './server/spawn-server.ts'
import { fixed, median, medianRatio } from './stat.ts'

/** Different calls, so that no server can use a cached response. */
const VARIANTS = 16

const ROUNDS = ['first', 'last'] as const
type Round = (typeof ROUNDS)[number]

interface Program {
  readonly label: string
  readonly written: ProgramName
  readonly inline: ProgramName
  flow(variant: number): Flow
}

const PROGRAMS: readonly Program[] = [
  {
    label: 'README',
    written: 'readme',
    inline: 'readme-inline',
    flow: (id) => ({
      tool: 'resolve_bug',
      args: { id },
      answer: () => ({ resolution: 'Fixed' }),
      expected: `Bug #${id} resolved as Fixed.`,
    }),
  },
  {
    label: 'guide, two questions',
    written: 'rules',
    inline: 'rules-inline',
    flow: (workItemId) => ({
      tool: 'update_work_item',
      args: { workItemId, fields: { 'System.State': 'Resolved' } },
      answer: (key) => (key === 'resolution' ? { resolution: 'Duplicate' } : { duplicateOfId: 1 }),
      expected: `Bug #${workItemId} resolved as Duplicate of Bug #1. State set to Resolved and duplicate link created.`,
    }),
  },
]

export interface ProgramCosts {
  readonly label: string
  readonly costs: Costs<string, Round>
  readonly written: ProgramName
  readonly inline: ProgramName
}

export async function measurePrograms(effort: Effort, settings: Settings): Promise<readonly ProgramCosts[]> {
  const measured: ProgramCosts[] = []
  for (const { label, written, inline, flow } of PROGRAMS) {
    const racers = await Promise.all(
      [written, inline].map(async (name): Promise<Racer<string, Round>> => {
        const server = await spawnServer(name, 1)
        return { server, exchanges: await playAll(server.url, VARIANTS, flow) }
      }),
    )
    try {
      const costs = await race(label, racers, ROUNDS, effort, settings)
      measured.push({ label, written, inline, costs })
    } finally {
      await Promise.all(racers.map(({ server }) => server.stop()))
    }
  }
  return measured
}

export function programTable(measured: readonly ProgramCosts[]): Table {
  return {
    title:
      'Programs of README and guide as written, and with their schemas created in the handler: server CPU of one request',
    mark: 'programs',
    columns: ['program', 'round', 'as written µs', 'in the handler µs', 'in the handler ÷ as written'],
    rows: measured.flatMap(({ label, costs, written, inline }) =>
      ROUNDS.map((round) => {
        const [outside = [], inside = []] = [costs[round][written], costs[round][inline]]
        const ratio = medianRatio(inside, outside)
        return [label, round, fixed(median(outside)), fixed(median(inside)), `${fixed(ratio, 2)}×`]
      }),
    ),
  }
}

export async function playAll(
  url: URL,
  variants: number,
  flow: (variant: number) => Flow,
): Promise<Readonly<Record<Round, Exchanges>>> {
  const played: Rounds[] = []
  for (let id = 1; id <= variants; id++) played.push(await playFlow(url, id, flow(id)))
  const at = (index: number): Rounds => played[index % variants] as Rounds
  return { first: (index) => at(index).first, last: (index) => at(index).last }
}

const QUESTIONS = [1, 2, 4, 8, 16, 32]
const TOOLS = ['survey', 'survey_discarded', 'survey_inline'] as const

export type QuestionCosts = readonly {
  readonly questions: number
  readonly hoisted: readonly number[]
  /** Hoisted, while zod creates a schema for each question that nobody uses: the lower bound of `inline`. */
  readonly discarded: readonly number[]
  readonly inline: readonly number[]
}[]

/** The last round of a flow with so many questions, which replays all of them but the last. */
export async function measureQuestions(effort: Effort, settings: Settings): Promise<QuestionCosts> {
  const server = await spawnServer('survey', 1)
  try {
    const cases = QUESTIONS.flatMap((count) =>
      TOOLS.map((tool) => ({ tool, count, name: `${tool} ${count}` })),
    )
    const exchanges: Record<string, Exchanges> = {}
    for (const { tool, count, name } of cases) {
      const answer = (): object => ({ resolution: 'Fixed' })
      const flow: Flow = { tool, args: { count }, answer, expected: `${count} answers` }
      exchanges[name] = (await playAll(server.url, 1, () => flow)).last
    }
    const names = cases.map(({ name }) => name)
    const smaller = { ...effort, warmUp: effort.warmUp / 4, requests: effort.requests / 3 }
    const costs = await race('questions', [{ server, exchanges }], names, smaller, settings)
    const of = (tool: string, count: number): number[] => costs[`${tool} ${count}`]?.survey ?? []
    return QUESTIONS.map((questions) => ({
      questions,
      hoisted: of('survey', questions),
      discarded: of('survey_discarded', questions),
      inline: of('survey_inline', questions),
    }))
  } finally {
    await server.stop()
  }
}

export function questionTable(costs: QuestionCosts): Table {
  const [one] = costs
  const each = (kind: 'hoisted' | 'discarded' | 'inline', row: QuestionCosts[number]): string => {
    const more = row[kind].map((cost, round) => cost - (one?.[kind][round] ?? Number.NaN))
    return row === one ? '–' : fixed(median(more) / (row.questions - 1), 1)
  }
  return {
    title:
      'The last round of a call by the number of its questions, and what each replayed question adds: server CPU',
    mark: 'questions',
    columns: [
      'questions',
      'hoisted µs',
      'inline µs',
      'hoisted, each µs',
      'and zod alone, each µs',
      'inline, each µs',
    ],
    rows: costs.map((row) => [
      String(row.questions),
      fixed(median(row.hoisted)),
      fixed(median(row.inline)),
      each('hoisted', row),
      each('discarded', row),
      each('inline', row),
    ]),
  }
}
