/** A flow as a test for `rondo/testing` that replays it: the same arguments, the same answers, the same questions and end. */

import type { Served } from '../src/console/event.ts'
import { argumentsOf, endOf, type Flow, type Round, type Task } from './model.ts'

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

export function toTest(flow: Flow, file: string, served: Served, task?: Task): string {
  const { exported, isOfficial } = served
  const used = new Set<string>()
  const lines = flow.task === undefined ? sayRounds(mainLine(flow), used) : sayTask(flow, task, used)
  const begin = flow.task === undefined ? BEGINS[flow.method] : 'task'
  const args = [
    quote(flow.target),
    ...(flow.method === 'resources/read' ? [] : [quote(argumentsOf(flow))]),
    ...(flow.principal === undefined ? [] : [`{ principal: { subject: ${quote(flow.principal)} } }`]),
  ].join(', ')
  const call = exported.isFunction && !isOfficial ? 'served()' : 'served'
  // An official server has no fetch of its own: its handler is called, as its entrances call it.
  const made = isOfficial ? `createMcpHandler(${exported.isFunction ? call : `() => ${call}`})` : call
  return `${[
    ...(isOfficial ? [`import { createMcpHandler } from '@modelcontextprotocol/server'`] : []),
    `import { ${[...used, 'importBench'].sort().join(', ')} } from 'rondo/testing'`,
    `import { afterAll, expect, it } from 'vitest'`,
    '',
    '// The server of the file, with a store in memory and a clock on which sleeps take no time.',
    'const bench = await importBench(async () => {',
    `  const { ${exported.name === 'default' ? 'default: served' : `${exported.name}: served`} } = await import(${quote(`./${fileName(file)}`)})`,
    `  return ${made}`,
    '})',
    'afterAll(() => bench.server.close())',
    '',
    '// Effects run for real, under keys of their own.',
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

/** Tasks are answered as they ask, however many turns that takes, and sleep on the clock of the bench. */
function sayTask(flow: Flow, task: Task | undefined, used: Set<string>): string[] {
  const { rounds } = flow
  const answers = Object.assign({}, ...rounds.map(answersOf)) as Record<string, Answer>
  for (const { operations } of rounds)
    for (const { key, state, value } of operations)
      if (state === 'answered' && answers[key] === undefined) answers[key] = read(value)
  const given = sayAnswers(answers, used)
  const end = task && endOf(flow, task)
  if (task === undefined || end === undefined || task.status === 'cancelled')
    return [
      'await call.next()',
      ...(given === '' ? [] : [`await call.next(${given})`]),
      ...(task?.status === 'cancelled'
        ? ['await call.cancel()', `expect(await call.next()).toEqual({ kind: 'cancelled' })`]
        : []),
    ]
  const { result, error } = task
  const wanted = result
    ? sayReply(result as Reply)
    : `{ kind: 'error', message: ${quote(error?.message ?? '')} }`
  return [`expect(await call.run(${given})).toMatchObject(${wanted})`]
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

function sayReply({ resultType, inputRequests = {}, content = [], isError }: Reply): string {
  if (resultType === 'input_required') {
    const asked = Object.entries(inputRequests).map(([key, { params }]) =>
      typeof params?.message === 'string'
        ? `${quote(key)}: { params: { message: ${quote(params.message)} } }`
        : `${quote(key)}: {}`,
    )
    return `{ kind: 'input_required', questions: { ${asked.join(', ')} } }`
  }
  const texts = content.map(({ text }) => text)
  const parts = [
    `kind: 'complete'`,
    ...(texts.length > 0 && texts.every((text) => typeof text === 'string')
      ? [`text: ${quote(texts.join('\n'))}`]
      : []),
    ...(isError ? ['result: { isError: true }'] : []),
  ]
  return `{ ${parts.join(', ')} }`
}
