/**
 * The cost of one request for a server: a plain call, a first leg that asks, a second leg that completes, with 1, 20 and 100
 * tools registered.
 *
 * Rondo, the official server, one written by hand and a bare one each run in a process of their own; so does the build of another checkout, if there
 * is one (`--against`). `programs.ts` adds what schemas created in the handler cost, and replayed questions.
 */

import { type Aim, aimTable } from './aim.ts'
import type { Report, RunBench, Settings, Table } from './bench.ts'
import { addedPercent, type FormCosts, measureForms, plainMicros, shownPercent } from './forms.ts'
import { LEG_NAMES, LEGS, type Leg, prepareLegs } from './load/legs.ts'
import {
  measurePrograms,
  measureQuestions,
  type ProgramCosts,
  programTable,
  type QuestionCosts,
  questionTable,
} from './programs.ts'
import { type Costs, type Effort, type Racer, race } from './race.ts'
import { type FormName, pinLoad, type ServerName, spawnServer } from './server/spawn-server.ts'
import { fixed, median, medianRatio } from './stat.ts'

const SERVERS: readonly ServerName[] = ['rondo', 'official', 'by-hand', 'bare']
const TOOL_COUNTS = [1, 20, 100]
/** The cost of the log. The first is the control: it should add nothing. */
const FINE_FORMS: readonly FormName[] = ['rondo-plain', 'rondo-log', 'rondo-log-pipe']
/** Spans and access tokens as well. */
const FORMS: readonly FormName[] = [...FINE_FORMS, 'rondo-spans', 'rondo-oauth']
/** Rondo as another checkout has it (`--against`). */
const OTHER = 'other'

const FULL: Effort = { warmUp: 3_000, rounds: 7, requests: 1_500 }
const QUICK: Effort = { warmUp: 2_000, rounds: 3, requests: 500 }

/** What adds more than a few percent needs fewer processes (`coarse`). */
const FULL_FORMS = { processes: 10, coarse: 6, effort: { warmUp: 2_000, rounds: 8, requests: 500 } }
const QUICK_FORMS = { processes: 4, coarse: 2, effort: { warmUp: 2_000, rounds: 14, requests: 300 } }

type Subject = ServerName | typeof OTHER

interface Measured {
  readonly tools: number
  readonly costs: Costs<Subject, Leg>
  readonly idleRssBytes: Readonly<Record<string, number>>
  readonly busyRssBytes: Readonly<Record<string, number>>
}

interface Figures {
  readonly measured: readonly Measured[]
  readonly forms: FormCosts
  readonly programs: readonly ProgramCosts[]
  readonly questions: QuestionCosts
}

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  if (!pinLoad()) settings.progress('load and servers share their cores (no taskset)')
  if (settings.part === 'forms') {
    const forms = await measureAdded(settings)
    const absentNs = measureAbsent()
    const tables = [aimTable(addedAims(forms)), formTable(forms), absentTable(forms, absentNs)]
    return { tables, data: { forms, absentNs } }
  }
  const measured: Measured[] = []
  for (const tools of TOOL_COUNTS) measured.push(await measure(tools, effort, settings))
  const programs = await measurePrograms(effort, settings)
  const questions = await measureQuestions(effort, settings)
  const forms = await measureAdded(settings)
  return toReport({ measured, forms, programs, questions }, effort)
}

function measureAdded(settings: Settings): Promise<FormCosts> {
  const { processes, coarse, effort } = settings.quick ? QUICK_FORMS : FULL_FORMS
  const forms = FORMS.map((name) => ({ name, processes: FINE_FORMS.includes(name) ? processes : coarse }))
  return measureForms(forms, effort, settings)
}

async function measure(tools: number, effort: Effort, settings: Settings): Promise<Measured> {
  const racers: Racer<Subject, Leg>[] = await Promise.all(SERVERS.map((name) => prepare(name, tools)))
  if (settings.against !== undefined) racers.push(await prepareOther(tools, settings.against))
  const residentBytes = async (): Promise<Record<string, number>> =>
    Object.fromEntries(
      await Promise.all(racers.map(async ({ server }) => [server.name, (await server.usage()).rssBytes])),
    )
  try {
    const idleRssBytes = await residentBytes()
    const costs = await race(`${tools} tools`, racers, LEGS, effort, settings)
    return { tools, costs, idleRssBytes, busyRssBytes: await residentBytes() }
  } finally {
    await Promise.all(racers.map(({ server }) => server.stop()))
  }
}

async function prepare<Name extends ServerName>(name: Name, tools: number): Promise<Racer<Name, Leg>> {
  const server = await spawnServer(name, tools)
  return { server, exchanges: await prepareLegs(server.url, server.credential) }
}

async function prepareOther(tools: number, build: string): Promise<Racer<typeof OTHER, Leg>> {
  const server = await spawnServer('rondo', tools, { build })
  return { server: { ...server, name: OTHER }, exchanges: await prepareLegs(server.url) }
}

function toReport(figures: Figures, effort: Effort): Report {
  const { measured, forms, programs, questions } = figures
  const tables = [
    aimTable(aimsOf(figures), 'core-aims'),
    costTable(measured),
    programTable(programs),
    questionTable(questions),
    formTable(forms),
    absentTable(forms, measureAbsent()),
    memoryTable(measured),
  ]
  return { tables, data: { effort, ...figures } }
}

function aimsOf({ measured, questions, forms }: Figures): readonly Aim[] {
  const [one, hundred] = [measured.at(0), measured.at(-1)]
  const of = (at: Measured | undefined, leg: Leg, other: ServerName): number =>
    at ? medianRatio(at.costs[leg][other], at.costs[leg].rondo) : Number.NaN
  const legs = ['asks', 'answers'] as const
  const [first, last] = [questions.at(0), questions.at(-1)]
  const replayed = last?.hoisted.map((cost, round) => cost - (first?.hoisted[round] ?? Number.NaN)) ?? []
  const each = median(replayed) / ((last?.questions ?? 0) - (first?.questions ?? 0))
  return [
    { what: 'plain call ÷ official, 1 tool', found: of(one, 'plain', 'official'), unit: '×', least: 8 },
    ...LEGS.map((leg): Aim => {
      const found = 100 * of(one, leg, 'by-hand')
      const least = leg === 'plain' ? 70 : 85
      return { what: `${LEG_NAMES[leg]} ÷ by hand, 1 tool`, found, unit: ' %', least }
    }),
    { what: 'plain call ÷ bare, 1 tool', found: 100 * of(one, 'plain', 'bare'), unit: ' %', least: 75 },
    ...legs.flatMap((leg): Aim[] => [
      {
        what: `${LEG_NAMES[leg]} ÷ official, 1 tool`,
        found: of(one, leg, 'official'),
        unit: '×',
        least: 6.5,
      },
      {
        what: `${LEG_NAMES[leg]} ÷ official, 100 tools`,
        found: of(hundred, leg, 'official'),
        unit: '×',
        least: 10,
      },
      { what: `${LEG_NAMES[leg]} ÷ bare, 1 tool`, found: 100 * of(one, leg, 'bare'), unit: ' %', least: 60 },
    ]),
    { what: 'a replayed question, hoisted schema', found: each, unit: ' µs', most: 20 },
    ...addedAims(forms),
  ]
}

/** What each form may add to a request, in percent. */
const ADDED: readonly [FormName, string, number][] = [
  ['rondo-spans', 'spans add', 25],
  ['rondo-oauth', 'a token adds', 10],
]

function addedAims(forms: FormCosts): readonly Aim[] {
  return LEGS.flatMap((leg) =>
    ADDED.map(([form, what, most]): Aim => {
      const found = addedPercent(forms, leg, form)
      return { what: `${LEG_NAMES[leg]}: ${what}`, found, unit: ' %', most }
    }),
  )
}

/** The places on the path of a round where telemetry would be called, counted in `src/carry` and `src/replay`. */
const CHECKS = 12

/**
 * Nanoseconds that a round without telemetry spends on it. No function of it runs (`test/operate/telemetry-absent.test.ts`),
 * so what is left are tests for a member that is absent, on objects that differ from round to round.
 */
function measureAbsent(): number {
  interface Watched {
    readonly id: number
    readonly observed?: { end(): void }
  }
  const rounds = Array.from({ length: 64 }, (_, id): Watched => ({ id }))
  let met = 0
  const pass = (): void => {
    for (const round of rounds) {
      for (let check = 0; check < CHECKS; check++) {
        round.observed?.end()
        if (round.observed) met += 1
      }
    }
  }
  const times = Array.from({ length: 200 }, () => {
    const began = process.hrtime.bigint()
    for (let again = 0; again < 50; again++) pass()
    return Number(process.hrtime.bigint() - began) / (50 * rounds.length)
  })
  if (met > 0) throw new Error('Something was observed')
  return median(times)
}

function absentTable(forms: FormCosts, absentNs: number): Table {
  return {
    title: 'What is left of telemetry in a request without it',
    mark: 'core-absent',
    columns: ['request', 'telemetry absent', 'of a request'],
    rows: LEGS.map((leg) => {
      const share = absentNs / (10 * plainMicros(forms, leg))
      return [LEG_NAMES[leg], `${fixed(absentNs, 1)} ns`, `${fixed(share, 3)} %`]
    }),
  }
}

function formTable(forms: FormCosts): Table {
  return {
    title:
      'What the log, spans and access tokens (verified, then remembered) add to the server CPU of one request: median of several processes, and their range',
    mark: 'core-forms',
    columns: ['request', 'plain µs', 'control', 'log to a file', 'log to a pipe', 'spans', 'tokens'],
    rows: LEGS.map((leg) => [
      LEG_NAMES[leg],
      fixed(plainMicros(forms, leg)),
      ...FORMS.map((form) => shownPercent(forms, leg, form)),
    ]),
  }
}

function costTable(measured: readonly Measured[]): Table {
  const names = measured[0] ? (Object.keys(measured[0].costs.plain) as Subject[]) : []
  const hasOther = names.includes(OTHER)
  const columns = ['request', 'tools', ...names.map((name) => `${name} µs`)]
  return {
    title:
      'Server CPU of one request, and how many requests of Rondo go into the CPU time of one of the other',
    mark: 'core',
    columns: [
      ...columns,
      'rondo req/CPU-s',
      'rondo ÷ official',
      'rondo ÷ by hand',
      'rondo ÷ bare',
      ...(hasOther ? ['rondo ÷ other'] : []),
    ],
    rows: LEGS.flatMap((leg) =>
      measured.map(({ tools, costs: { [leg]: costs } }) => [
        LEG_NAMES[leg],
        String(tools),
        ...names.map((name) => fixed(median(costs[name]))),
        fixed(1e6 / median(costs.rondo)),
        `${fixed(medianRatio(costs.official, costs.rondo), 1)}×`,
        `${fixed(100 * medianRatio(costs['by-hand'], costs.rondo))} %`,
        `${fixed(100 * medianRatio(costs.bare, costs.rondo))} %`,
        ...(hasOther ? [`${fixed(medianRatio(costs[OTHER], costs.rondo), 2)}×`] : []),
      ]),
    ),
  }
}

function memoryTable(measured: readonly Measured[]): Table {
  const megabytes = (bytes = Number.NaN): string => fixed(bytes / 1e6)
  const rows = Object.keys(measured[0]?.idleRssBytes ?? {}).map((name) => [
    name,
    ...measured.flatMap(({ idleRssBytes, busyRssBytes }) => [
      megabytes(idleRssBytes[name]),
      megabytes(busyRssBytes[name]),
    ]),
  ])
  const columns = measured.flatMap(({ tools }) => [`${tools} tools, idle`, 'after the load'])
  const title = 'Resident memory of the server process, MB'
  return { title, mark: 'core-memory', columns: ['server', ...columns], rows }
}
