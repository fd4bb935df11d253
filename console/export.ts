/** A flow as a test for `rondo/testing` that replays it: the same arguments, the same answers, the same questions and end. */

import type { Served } from '../src/cli/console/event.ts'
import { argumentsOf, type Flow, type Round } from './model.ts'

interface Answer {
  readonly action?: string
  readonly content?: unknown
}

interface Reply {
  readonly resultType?: string
  readonly inputRequests?: Readonly<Record<string, { readonly params?: { readonly message?: unknown } }>>
  readonly content?: readonly { readonly text?: unknown }[]
  readonly isError?: boolean
}

export function toTest(flow: Flow, file: string, { exported, isOfficial }: Served): string {
  const used = new Set(['createBench'])
  const line = mainLine(flow)
  const lines = flow.task === undefined ? sayRounds(line, used) : sayTask(flow, used)
  const called = exported.name === 'default' ? 'served' : exported.name
  const made = exported.isFunction ? `(options) => ${called}(options)` : `() => ${called}`
  // An official server has no fetch of its own: its handler is called, as its entrances call it.
  const make = isOfficial
    ? `() => createMcpHandler(${exported.isFunction ? called : `() => ${called}`})`
    : made
  const begin = flow.task === undefined ? BEGINS[flow.method] : 'task'
  const args =
    flow.method === 'resources/read'
      ? quote(flow.target)
      : `${quote(flow.target)}, ${quote(argumentsOf(flow))}`
  return `${[
    ...(isOfficial ? [`import { createMcpHandler } from '@modelcontextprotocol/server'`] : []),
    `import { ${[...used].sort().join(', ')} } from 'rondo/testing'`,
    `import { afterAll, expect, it } from 'vitest'`,
    exported.name === 'default'
      ? `import served from ${quote(`./${fileName(file)}`)}`
      : `import { ${exported.name} } from ${quote(`./${fileName(file)}`)}`,
    '',
    `const bench = createBench(${make})`,
    'afterAll(() => bench.server.close())',
    '',
    '// Effects run for real, under keys of their own.',
    ...(flow.task === undefined
      ? []
      : ['// Stop the console first: its workers would take a task in the same store.']),
    `it(${quote(`${flow.target}, as recorded`)}, async () => {`,
    `  const call = bench.${begin ?? 'tool'}(${args})`,
    ...lines.map((one) => `  ${one}`),
    '})',
  ].join('\n')}\n`
}

const BEGINS: Readonly<Record<string, string>> = {
  'tools/call': 'tool',
  'prompts/get': 'prompt',
  'resources/read': 'resource',
}

const quote = (value: unknown): string => JSON.stringify(value)
const fileName = (path: string): string => path.split(/[/\\]/).at(-1) ?? path

/**
 * The rounds that led to the last one: without forks that were left, rounds that were delivered twice, and questions that the
 * console itself reworded.
 */
function mainLine({ rounds }: Flow): Round[] {
  const line: Round[] = []
  for (const round of rounds.filter((one) => !wasReworded(one))) {
    while ((line.at(-1)?.number ?? 0) >= round.number && !wasLost(line.at(-1))) line.pop()
    line.push(round)
  }
  return line
}

const wasReworded = (round: Round): boolean =>
  Object.values(replyOf(round).inputRequests ?? {}).some(({ params }) =>
    /\(reworded\)$/.test(String(params?.message)),
  )

const wasLost = (round: Round | undefined): boolean => round?.exchange?.fault === 'lose'

function sayRounds(line: readonly Round[], used: Set<string>): string[] {
  return line.flatMap((round) => {
    const given = sayAnswers(answersOf(round), used)
    if (wasLost(round)) return [`await call.loseReply(${given})`]
    return [`expect(await call.next(${given})).toMatchObject(${sayReply(replyOf(round))})`]
  })
}

/** Tasks are answered as they ask, however many turns that takes. */
function sayTask({ rounds }: Flow, used: Set<string>): string[] {
  const answers = Object.assign({}, ...rounds.map(answersOf)) as Record<string, Answer>
  for (const { operations } of rounds)
    for (const { key, state, value } of operations)
      if (state === 'answered' && answers[key] === undefined) answers[key] = read(value)
  return [`expect(await call.run(${sayAnswers(answers, used)})).toMatchObject({ kind: 'complete' })`]
}

function read(value: string | undefined): Answer {
  try {
    return JSON.parse(value ?? '') as Answer
  } catch {
    return { action: 'cancel' }
  }
}

function answersOf({ exchange }: Round): Readonly<Record<string, Answer>> {
  const params = exchange?.request?.params as { inputResponses?: Record<string, Answer> } | undefined
  return params?.inputResponses ?? {}
}

function replyOf({ exchange }: Round): Reply {
  return (exchange?.response?.result ?? {}) as Reply
}

function sayAnswers(answers: Readonly<Record<string, Answer>>, used: Set<string>): string {
  const parts = Object.entries(answers).map(([key, answer]) => {
    const { action, content } = answer
    if (action !== 'decline' && action !== 'cancel') return `${quote(key)}: ${quote(content ?? answer)}`
    used.add(action)
    return `${quote(key)}: ${action}`
  })
  return parts.length === 0 ? '' : `{ ${parts.join(', ')} }`
}

function sayReply({ resultType, inputRequests = {}, content }: Reply): string {
  if (resultType === 'input_required') {
    const asked = Object.entries(inputRequests).map(([key, { params }]) =>
      typeof params?.message === 'string'
        ? `${quote(key)}: { params: { message: ${quote(params.message)} } }`
        : `${quote(key)}: {}`,
    )
    return `{ kind: 'input_required', questions: { ${asked.join(', ')} } }`
  }
  const text = content?.[0]?.text
  return typeof text === 'string' ? `{ kind: 'complete', text: ${quote(text)} }` : `{ kind: 'complete' }`
}
