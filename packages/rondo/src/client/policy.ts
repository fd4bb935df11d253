/**
 * Policies see every round before anybody is asked (C13): which server, which request, which questions. A policy allows the
 * round, refuses the call, or rewrites the round: it changes questions or answers some itself.
 */

import { RondoError } from '../errors.ts'
import { findSecret } from '../form/form.ts'
import { isRecord } from '../lib/json.ts'
import { kindOf } from '../protocol/common/request.ts'
import type { InputRequest, InputRequests, InputResponse, InputResponses } from '../protocol/wire.ts'
import { answer, type FlowRequest, type PendingCall, type PendingServer } from './pending.ts'

export interface PolicyRound {
  readonly server: PendingServer
  readonly request: FlowRequest
  /** 1 the first time the server asks. */
  readonly round: number
  readonly questions: InputRequests
  /** Length of the server's state. */
  readonly stateLength: number
}

export type PolicyVerdict =
  | { readonly kind: 'allow' }
  | { readonly kind: 'refuse'; readonly reason: string }
  | {
      readonly kind: 'rewrite'
      /** Replaces questions by key: what people are shown instead of what the server sent. */
      readonly questions?: InputRequests
      /** Answers to questions that people are then not asked. */
      readonly answers?: InputResponses
    }

/** Returns a verdict; undefined allows the round. */
export type RoundPolicy = (
  round: PolicyRound,
) => PolicyVerdict | undefined | Promise<PolicyVerdict | undefined>

/** Applies the policies in order. The first refusal ends the call; each sees what the earlier ones rewrote. */
export async function applyPolicies<R extends FlowRequest>(
  pending: PendingCall<R>,
  policies: readonly RoundPolicy[],
): Promise<PendingCall<R>> {
  let now = pending
  for (const policy of policies) {
    const verdict = await policy(roundOf(now))
    if (verdict?.kind === 'refuse') {
      throw new RondoError('INPUT_REFUSED', `Refused by policy: ${verdict.reason}`, { data: verdict })
    }
    if (verdict?.kind === 'rewrite') now = rewrite(now, verdict.questions ?? {}, verdict.answers ?? {})
  }
  return now
}

function roundOf(pending: PendingCall): PolicyRound {
  const { server, request, round, questions, state = '' } = pending
  return { server, request, round, questions, stateLength: state.length }
}

function rewrite<R extends FlowRequest>(
  pending: PendingCall<R>,
  questions: InputRequests,
  answers: InputResponses,
): PendingCall<R> {
  const shown = Object.entries(pending.questions).map(([key, question]): [string, InputRequest] => {
    const other = Object.hasOwn(questions, key) ? questions[key] : undefined
    if (other !== undefined && kindOf(other) !== kindOf(question)) {
      throw new TypeError(`A policy must not change the kind of the question "${key}"`)
    }
    return [key, other ?? question]
  })
  const given: [string, InputResponse][] = Object.entries(answers)
  return given.reduce((now, [key, response]) => answer(now, key, response), {
    ...pending,
    questions: Object.fromEntries(shown),
  })
}

/**
 * Refuses URLs of other hosts than these. `*.example.com` stands for every host below example.com.
 *
 * @example
 * ```ts
 * const ours = await connect('https://tables.example.com/mcp', {
 *   onRound: [allowUrlHosts(['*.example.com'])],
 * })
 * ```
 */
export function allowUrlHosts(hosts: readonly string[]): RoundPolicy {
  const exact = new Set(hosts.filter((host) => !host.startsWith('*.')).map((host) => host.toLowerCase()))
  const below = hosts.filter((host) => host.startsWith('*.')).map((host) => host.slice(1).toLowerCase())
  return ({ questions }) => {
    for (const [key, question] of Object.entries(questions)) {
      if (question.method !== 'elicitation/create' || question.params.mode !== 'url') continue
      const { hostname } = new URL(question.params.url)
      if (exact.has(hostname) || below.some((suffix) => hostname.endsWith(suffix))) continue
      return { kind: 'refuse', reason: `"${key}" leads to ${hostname}, which is not an allowed host` }
    }
    return undefined
  }
}

export interface RoundBudget {
  /** The window in which rounds count. Default: all rounds count. */
  readonly withinMs?: number
  readonly now?: () => number
}

/**
 * Refuses a server that asked `limit` rounds, counted over all its calls. Clients that are passed the same policy share the
 * count.
 *
 * @example
 * ```ts
 * const patient = await connect('https://tables.example.com/mcp', {
 *   onRound: [maxRoundsPerServer(50, { withinMs: 60 * 60 * 1000 })],
 * })
 * ```
 */
export function maxRoundsPerServer(limit: number, budget: RoundBudget = {}): RoundPolicy {
  const { withinMs = Number.POSITIVE_INFINITY, now = Date.now } = budget
  const rounds = new Map<string, number[]>()
  return ({ server }) => {
    const name = server.name ?? server.target
    const time = now()
    const recent = (rounds.get(name) ?? []).filter((one) => time - one < withinMs)
    if (recent.length >= limit) {
      return { kind: 'refuse', reason: `${name} has used up its ${limit} rounds` }
    }
    rounds.set(name, [...recent, time])
    return undefined
  }
}

/**
 * Refuses forms with a field that looks like a password, a key or a token: those belong behind a URL.
 *
 * @example
 * ```ts
 * const careful = await connect('https://tables.example.com/mcp', { onRound: [noSecretsInForms()] })
 * ```
 */
export function noSecretsInForms(): RoundPolicy {
  return ({ questions }) => {
    for (const [key, question] of Object.entries(questions)) {
      if (question.method !== 'elicitation/create' || question.params.mode !== 'form') continue
      const field = secretField(question.params.requestedSchema.properties)
      if (field !== undefined) {
        return { kind: 'refuse', reason: `"${key}" asks for "${field}" in a form, which looks like a secret` }
      }
    }
    return undefined
  }
}

function secretField(properties: unknown): string | undefined {
  if (!isRecord(properties)) return undefined
  return Object.keys(properties).find((name) => findSecret(name, properties[name]) !== undefined)
}

/**
 * Refuses every round in which a server asks for sampling.
 *
 * @example
 * ```ts
 * const thrifty = await connect('https://tables.example.com/mcp', { onRound: [refuseSampling()] })
 * ```
 */
export function refuseSampling(): RoundPolicy {
  return ({ questions }) => {
    const key = Object.keys(questions).find((one) => {
      const question = questions[one]
      return question !== undefined && kindOf(question) === 'sampling'
    })
    return key === undefined ? undefined : { kind: 'refuse', reason: `"${key}" asks for sampling` }
  }
}
