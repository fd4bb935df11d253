/**
 * What an upstream says on its way to a caller.
 *
 * W4 Questions are vetted before anybody sees them, and say which server asks.
 */

import { ToolError } from 'rondo'
import type { FlowRequest, InputRequest, InputRequests, InputResponses, RoundPolicy } from 'rondo/client'
import { UpstreamError, type WireError } from 'rondo/forward'
import { OWN_KEY } from './decide.ts'
import type { Upstream } from './upstream.ts'

type Result = Readonly<Record<string, unknown>>

export interface Vetting {
  readonly policies: readonly RoundPolicy[]
  /** Whether the names of upstreams are shown in questions: there are several. */
  readonly labels: boolean
}

const CANCELLED = 'The call is cancelled, and may have had effects there.'

/** Applies the policies. A question whose key is the gateway's own would be mistaken for one of its questions. */
export async function vet(
  { policies }: Vetting,
  { upstream, request }: { readonly upstream: Upstream; readonly request: FlowRequest },
  given: InputRequests,
  round: number,
  stateLength = 0,
): Promise<{ readonly questions: InputRequests; readonly answers: InputResponses }> {
  let questions: InputRequests = Object.fromEntries(
    Object.entries(given).map(([key, one]) => [key, withOwnMeta(one)]),
  )
  let answers: InputResponses = {}
  const server = { target: upstream.name, name: upstream.known.server }
  const clash = Object.keys(questions).find((key) => key.startsWith(OWN_KEY))
  if (clash !== undefined)
    throw new ToolError(`"${upstream.name}" asks under a key that is reserved here: ${clash}. ${CANCELLED}`)
  for (const policy of policies) {
    const verdict = await policy({ server, request, round, questions, stateLength })
    if (verdict?.kind === 'refuse')
      throw new ToolError(
        `A question of "${upstream.name}" is not shown here: ${verdict.reason}. ${CANCELLED}`,
      )
    if (verdict?.kind !== 'rewrite') continue
    answers = { ...answers, ...verdict.answers }
    const open = Object.entries({ ...questions, ...verdict.questions })
    // Nobody is asked what a policy has answered, or what the upstream did not ask.
    questions = Object.fromEntries(
      open.filter(([key]) => Object.hasOwn(given, key) && !Object.hasOwn(answers, key)),
    )
  }
  return { questions, answers }
}

/** The keys of `_meta` but for those that the protocol gives to each hop. */
export function ownMeta(meta: Result): Result {
  const own = Object.entries(meta).filter(
    ([key]) => !key.startsWith('io.modelcontextprotocol/') && key !== 'progressToken',
  )
  return Object.fromEntries(own)
}

/** W2: a question of a task names the upstream's id in a key of its hop, which would be an unknown task to the client. */
function withOwnMeta(request: InputRequest): InputRequest {
  const { _meta, ...rest } = (request.params ?? {}) as Result
  if (typeof _meta !== 'object' || _meta === null) return request
  const own = ownMeta(_meta as Result)
  const params = Object.keys(own).length > 0 ? { ...rest, _meta: own } : rest
  return { ...request, params } as InputRequest
}

/** The answers that belong upstream: those to the gateway's own questions do not. */
export function foreign(given: InputResponses): InputResponses {
  return Object.fromEntries(Object.entries(given).filter(([key]) => !key.startsWith(OWN_KEY)))
}

/**
 * The questions without apps of others: clients read an app here by its URI alone, and would show the question of one upstream in
 * the app of another.
 */
export async function withOwnApps(
  given: InputRequests,
  isOwn: (uri: string) => Promise<boolean>,
): Promise<InputRequests> {
  const entries = Object.entries(given).map(async ([key, request]) => {
    if (request.method !== 'elicitation/create' || request.params.mode !== 'form')
      return [key, request] as const
    const { _meta = {}, ...rest } = request.params
    const { ui, ...others } = _meta
    if (ui === undefined || (await isOwn(String((ui as Result).resourceUri)))) return [key, request] as const
    const params = Object.keys(others).length > 0 ? { ...rest, _meta: others } : rest
    return [key, { method: request.method, params }] as const
  })
  return Object.fromEntries(await Promise.all(entries))
}

export function labelled({ labels }: Vetting, { name }: Upstream, request: InputRequest): InputRequest {
  if (!labels || request.method !== 'elicitation/create') return request
  const { method, params } = request
  return { method, params: { ...params, message: `${name} asks: ${params.message}` } }
}

const isOfHop = (code: number): boolean =>
  (code <= -32020 && code >= -32099) || code === -32700 || code === -32600 || code === -32042

/** An error of the upstream with its own code, unless the code would mean something about the caller's connection. */
export function toUpstreamError({ code, message, data }: WireError): UpstreamError {
  return new UpstreamError({
    code: isOfHop(code) ? -32603 : code,
    message,
    ...(data !== undefined && { data }),
  })
}

const SERVER_INFO = 'io.modelcontextprotocol/serverInfo'
/** W2: contains the upstream's id of a task. */
const RELATED_TASK = 'io.modelcontextprotocol/related-task'

/** The result without what the protocol gives to each hop. */
export function withoutHop(result: Result): Result {
  const { resultType: _, _meta, ...rest } = result
  if (typeof _meta !== 'object' || _meta === null) return rest
  const { [SERVER_INFO]: __, [RELATED_TASK]: ___, ...others } = _meta as Result
  return Object.keys(others).length === 0 ? rest : { ...rest, _meta: others }
}
