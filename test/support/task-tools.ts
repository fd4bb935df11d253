/** A host that knows nothing of tasks: it calls tools, shows the questions that come back, and reads text. */

import type { Server } from 'rondo'
import type { Script } from 'rondo/testing'
import type { InputRequest } from '../../packages/rondo/src/protocol/wire.ts'
import { toResponse } from '../../packages/rondo/src/testing/call.ts'
import { connectOlder, type OlderClientOptions } from './older-client.ts'
import { type Rpc, send } from './task-client.ts'

export const PLAIN = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }

export interface Host {
  /** Calls a tool to its end; its questions are answered from the script, under their names. */
  call(name: string, args?: object, script?: Script): Promise<Result>
}

export interface Result {
  readonly text: string
  readonly isError: boolean
  readonly structuredContent?: unknown
}

export function toResult({ result, error }: Rpc): Result {
  if (!result) return { text: `error ${error?.code}: ${error?.message}`, isError: true }
  const {
    content = [],
    isError = false,
    structuredContent,
  } = result as never as {
    content?: { text?: string }[]
    isError?: boolean
    structuredContent?: unknown
  }
  return { text: content.map(({ text }) => text).join('\n'), isError, structuredContent }
}

/** The script's answer to a question, which has another key if it is asked again. */
function scripted(script: Script, key: string, request: InputRequest): unknown {
  const answer = script[key.replace(/~\d+$/, '')]
  if (answer === undefined) throw new Error(`The script has no answer to "${key}"`)
  return toResponse(request, answer)
}

/** A host of 2026-07-28, which is asked in rounds. */
export function roundsHost(server: Pick<Server, 'fetch'>, headers: Record<string, string> = {}): Host {
  return {
    async call(name, args = {}, script = {}) {
      let more: object = {}
      for (let i = 0; i < 12; i++) {
        const reply = await send(
          server,
          'tools/call',
          { name, arguments: args, ...more },
          { capabilities: PLAIN, headers },
        )
        if (reply.result?.resultType !== 'input_required') return toResult(reply)
        const { inputRequests = {}, requestState } = reply.result as {
          inputRequests?: Record<string, InputRequest>
          requestState?: string
        }
        const entries = Object.entries(inputRequests).map(([key, request]) => [
          key,
          scripted(script, key, request),
        ])
        more = { inputResponses: Object.fromEntries(entries), requestState }
      }
      throw new Error(`${name} took more rounds than clients allow`)
    },
  }
}

/** A host of 2025-11-25 or older, which is asked by push. Its questions have no keys: their messages are looked up. */
export async function pushHost(
  url: string,
  keyOf: (message: string) => string,
  options: OlderClientOptions = {},
): Promise<Host & { readonly asked: readonly unknown[] }> {
  let current: Script = {}
  const client = await connectOlder(url, {
    capabilities: PLAIN,
    answer({ method, params }) {
      const request = { method, params } as never as InputRequest
      return scripted(current, keyOf(String(params.message ?? method)), request)
    },
    ...options,
  })
  return {
    asked: client.asked,
    async call(name, args = {}, script = {}) {
      current = script
      return toResult((await client.call('tools/call', { name, arguments: args })) as Rpc)
    },
  }
}

/** The id in the sentence that a call returned. */
export function idIn({ text }: Result): string {
  const id = /task ([A-Za-z0-9_-]{22,64})\b/.exec(text)?.[1]
  if (id === undefined) throw new Error(`There is no id in "${text}"`)
  return id
}

/** Calls `task_status` until the task has ended. */
export async function untilEnded(host: Host, taskId: string, script: Script = {}): Promise<Result> {
  for (let i = 0; i < 20; i++) {
    const result = await host.call('task_status', { taskId }, script)
    if ((result.structuredContent as { task?: { next?: string } } | undefined)?.task?.next === undefined)
      return result
  }
  throw new Error('The task never ends')
}
