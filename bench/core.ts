/**
 * The cost of one request for a server: a plain call, a first leg that asks, a second leg that completes, with 1, 20 and 100
 * tools registered.
 *
 * Rondo, the official server and a bare one each run in a process of their own; so does the build of another checkout, if there
 * is one (`--against`). `programs.ts` adds what schemas created in the handler cost, and replayed questions.
 */

import type { Report, RunBench, Settings, Table } from './bench.ts'
import { LEGS, type Leg, prepareLegs } from './load/legs.ts'
import {
  measurePrograms,
  measureQuestions,
  type ProgramCosts,
  programTable,
  type QuestionCosts,
  questionTable,
} from './programs.ts'
import { type Costs, type Effort, type Racer, race } from './race.ts'
import {
  type FormName,
  pinLoad,
  type ServerName,
  type ServerProcess,
  spawnServer,
} from './server/spawn-server.ts'
import { fixed, median, medianRatio } from './stat.ts'

const SERVERS: readonly ServerName[] = ['rondo', 'official', 'bare']
const TOOL_COUNTS = [1, 20, 100]
/** The cost of the log. The first is the control: it should add nothing. */
const FINE_FORMS: readonly FormName[] = ['rondo-plain', 'rondo-log', 'rondo-log-pipe']
/** Spans and access tokens as well. */
const FORMS: readonly FormName[] = [...FINE_FORMS, 'rondo-spans', 'rondo-oauth']
/** Rondo as another checkout has it (`--against`). */
const OTHER = 'other'

const FULL: Effort = { warmUp: 6_000, rounds: 9, requests: 1_500 }
const QUICK: Effort = { warmUp: 2_000, rounds: 3, requests: 500 }

/**
 * A few percent: less than two processes of the same program differ by, or two servers in one process, since each is
 * optimized in its own way. So each form runs beside a plain server in one process, in short rounds, in many processes.
 * Being first has a price as well, when they start and in a round; so the plain server starts first in half of the
 * processes, and goes first in half of the rounds. What adds more than that needs fewer processes (`coarse`).
 */
const FULL_FORMS = { processes: 24, coarse: 8, effort: { warmUp: 3_000, rounds: 10, requests: 500 } }
const QUICK_FORMS = { processes: 4, coarse: 2, effort: { warmUp: 2_000, rounds: 14, requests: 300 } }

/** By leg and form: how the CPU time of a request compares with that of a plain server, one figure per process. */
type FormCosts = Readonly<Record<Leg, Record<FormName, { micros: number; ratio: number }[]>>>

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
    const forms = await measureForms(settings)
    const absentNs = measureAbsent()
    return { tables: [formTable(forms), absentTable(forms, absentNs)], data: { forms, absentNs } }
  }
  const measured: Measured[] = []
  for (const tools of TOOL_COUNTS) measured.push(await measure(tools, effort, settings))
  const programs = await measurePrograms(effort, settings)
  const questions = await measureQuestions(effort, settings)
  const forms = await measureForms(settings)
  return toReport({ measured, forms, programs, questions }, effort)
}

async function measureForms(settings: Settings): Promise<FormCosts> {
  const { processes, coarse, effort } = settings.quick ? QUICK_FORMS : FULL_FORMS
  const none = () => Object.fromEntries(FORMS.map((form) => [form, []])) as unknown as FormCosts[Leg]
  const forms: FormCosts = { plain: none(), asks: none(), answers: none() }
  for (let number = 1; number <= processes; number++) {
    for (const form of number <= coarse ? FORMS : FINE_FORMS) {
      const plainLast = number % 2 === 0
      const server = await spawnServer(form, 1, { plainLast })
      const beside = { ...server, name: 'plain' as const, url: plainOf(server), token: undefined }
      try {
        const racers: Racer<FormName | 'plain', Leg>[] = []
        for (const one of plainLast ? [server, beside] : [beside, server])
          racers.push({ server: one, exchanges: await prepareLegs(one.url, one.token) })
        const label = `${form}, process ${number} of ${processes}`
        const costs = await race(label, racers, LEGS, effort, settings)
        for (const leg of LEGS) {
          const { plain: base } = costs[leg]
          forms[leg][form].push({ micros: median(base), ratio: medianRatio(costs[leg][form], base) })
        }
      } finally {
        await server.stop()
      }
    }
  }
  return forms
}

function plainOf({ name, plain }: ServerProcess<string>): URL {
  if (plain === undefined) throw new Error(`${name} starts no plain server to compare it with`)
  return plain
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
  return { server, exchanges: await prepareLegs(server.url, server.token) }
}

async function prepareOther(tools: number, build: string): Promise<Racer<typeof OTHER, Leg>> {
  const server = await spawnServer('rondo', tools, { build })
  return { server: { ...server, name: OTHER }, exchanges: await prepareLegs(server.url) }
}

const LEG_NAMES: Readonly<Record<Leg, string>> = {
  plain: 'plain call',
  asks: 'first leg, asks',
  answers: 'second leg, completes',
}

function toReport(figures: Figures, effort: Effort): Report {
  const { measured, forms, programs, questions } = figures
  const tables = [
    aimTable(figures),
    costTable(measured),
    programTable(programs),
    questionTable(questions),
    formTable(forms),
    absentTable(forms, measureAbsent()),
    memoryTable(measured),
  ]
  return { tables, data: { effort, ...figures } }
}

/** An aim: `most` or `least`, in which unit, and what was measured. */
interface Aim {
  readonly what: string
  readonly found: number
  readonly unit: '×' | ' %' | ' µs'
  readonly least?: number
  readonly most?: number
}

function aimTable(figures: Figures): Table {
  const rows = aimsOf(figures).map(({ what, found, unit, least, most }) => {
    const isMet = found >= (least ?? Number.NEGATIVE_INFINITY) && found <= (most ?? Number.POSITIVE_INFINITY)
    const aim = least === undefined ? `≤ ${most}${unit}` : `≥ ${least}${unit}`
    return [
      what,
      aim,
      `${fixed(found, unit === ' %' ? 0 : unit === '×' ? 2 : 1)}${unit}`,
      isMet ? 'yes' : 'no',
    ]
  })
  return { title: 'What is aimed at', columns: ['figure', 'aim', 'measured', 'reached'], rows }
}

function aimsOf({ measured, questions, forms }: Figures): readonly Aim[] {
  const [one, hundred] = [measured.at(0), measured.at(-1)]
  const of = (at: Measured | undefined, leg: Leg, other: ServerName): number =>
    at ? medianRatio(at.costs[leg][other], at.costs[leg].rondo) : Number.NaN
  const legs = ['asks', 'answers'] as const
  const [first, last] = [questions.at(0), questions.at(-1)]
  const replayed = last?.hoisted.map((cost, round) => cost - (first?.hoisted[round] ?? Number.NaN)) ?? []
  const each = median(replayed) / ((last?.questions ?? 0) - (first?.questions ?? 0))
  const log = LEGS.flatMap((leg) =>
    (['rondo-log', 'rondo-log-pipe'] as const).map((form): Aim => {
      const found = 100 * (median(forms[leg][form].map(({ ratio }) => ratio)) - 1)
      const where = form === 'rondo-log' ? 'a file' : 'a pipe'
      return { what: `${LEG_NAMES[leg]}: the log to ${where} adds`, found, unit: ' %', most: 5 }
    }),
  )
  return [
    { what: 'plain call ÷ official, 1 tool', found: of(one, 'plain', 'official'), unit: '×', least: 8 },
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
    ...log,
  ]
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
    columns: ['request', 'telemetry absent', 'of a request'],
    rows: LEGS.map((leg) => {
      const micros = median(FORMS.flatMap((form) => forms[leg][form].map((one) => one.micros)))
      return [LEG_NAMES[leg], `${fixed(absentNs, 1)} ns`, `${fixed(absentNs / (10 * micros), 3)} %`]
    }),
  }
}

function formTable(forms: FormCosts): Table {
  const percent = (ratio: number): string => fixed(100 * (ratio - 1), 1)
  const more = (leg: Leg, form: FormName): string => {
    const ratios = forms[leg][form].map(({ ratio }) => ratio)
    return `${percent(median(ratios))} (${percent(Math.min(...ratios))} to ${percent(Math.max(...ratios))}) %`
  }
  return {
    title:
      'What the log, spans and access tokens (verified, then remembered) add to the server CPU of one request: median of several processes, and their range',
    columns: ['request', 'plain µs', 'control', 'log to a file', 'log to a pipe', 'spans', 'tokens'],
    rows: LEGS.map((leg) => [
      LEG_NAMES[leg],
      fixed(median(FORMS.flatMap((form) => forms[leg][form].map(({ micros }) => micros)))),
      ...FORMS.map((form) => more(leg, form)),
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
    columns: [
      ...columns,
      'rondo req/CPU-s',
      'rondo ÷ official',
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
  return { title: 'Resident memory of the server process, MB', columns: ['server', ...columns], rows }
}
