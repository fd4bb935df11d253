/** The requests of a client of 2026-07-28 to a server of which only the address is known, and what must come back. */

import { setTimeout as sleep } from 'node:timers/promises'
import { resultFor, TOOL } from '../work.ts'
import { openConnection, type Response } from './connection.ts'
import type { Exchange } from './drive.ts'
import { httpRequest } from './http-request.ts'

/** A question that waits for its answer: a state if the server gave one, and the key, which the server chooses. */
export interface Parked {
  readonly id: number
  readonly key: string
  readonly requestState?: string
}

export interface Outside {
  readonly url: URL
  plain(id: number): Exchange
  ask(id: number, parked: (question: Parked) => void): Exchange
  answer(question: Parked | undefined): Exchange
  /** Calls as a client that supports tasks, polls as often as the server says, and returns after how many ms it learnt the result; `undefined` if the call did not become a task. */
  task(id: number): Promise<number | undefined>
}

const RESOLUTION = 'Fixed'
const MAX_POLLS = 1_000

interface Result {
  readonly resultType?: string
  readonly content?: readonly { readonly text?: string }[]
  readonly inputRequests?: object
  readonly requestState?: string
  readonly taskId?: string
  readonly status?: string
  readonly pollIntervalMs?: number
}

const metaWith = (capabilities: object): object => ({
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} }, ...capabilities },
  'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1.0.0' },
})
const META = metaWith({})
const TASK_META = metaWith({ extensions: { 'io.modelcontextprotocol/tasks': {} } })

export function openOutside(url: URL, headers: readonly string[] = []): Outside {
  const call = (id: number, params: object, _meta = META): string => {
    const message = { id, method: 'tools/call', name: TOOL, params: { name: TOOL, ...params, _meta } }
    return httpRequest(url, message, headers)
  }
  return {
    url,
    plain: (id) => ({
      request: call(id, { arguments: { id, resolution: RESOLUTION } }),
      check: (response) => assertCompletes(resultOf(response), id),
    }),
    ask: (id, parked) => ({
      request: call(id, { arguments: { id } }),
      check(response) {
        const result = resultOf(response)
        const [key] = Object.keys(result.inputRequests ?? {})
        if (result.resultType !== 'input_required' || key === undefined) throw unexpected(result)
        parked({ id, key, requestState: result.requestState })
      },
    }),
    answer(question) {
      if (question === undefined) throw new Error('There are fewer questions than answers')
      const { id, key, requestState } = question
      const inputResponses = { [key]: { action: 'accept', content: { resolution: RESOLUTION } } }
      return {
        request: call(id, { arguments: { id }, inputResponses, requestState }),
        check: (response) => assertCompletes(resultOf(response), id),
      }
    },
    async task(id) {
      const connection = await openConnection(url)
      try {
        const began = performance.now()
        const args = { arguments: { id, resolution: RESOLUTION } }
        const first = resultOf(await connection.send(call(id, args, TASK_META)))
        if (first.resultType !== 'task') return undefined
        const name = first.taskId ?? ''
        const message = { id, method: 'tasks/get', name, params: { taskId: name, _meta: TASK_META } }
        let state = first
        for (let polls = 0; state.status === 'working' && polls < MAX_POLLS; polls++) {
          await sleep(state.pollIntervalMs ?? 1_000)
          state = resultOf(await connection.send(httpRequest(url, message, headers)))
        }
        if (state.status !== 'completed') throw unexpected(state)
        return performance.now() - began
      } finally {
        connection.close()
      }
    },
  }
}

function resultOf({ status, body }: Response): Result {
  let message: { result?: Result; error?: { message?: string } } = {}
  try {
    message = JSON.parse(body)
  } catch {
    // What is no JSON is reported by its status.
  }
  if (status === 200 && message.result !== undefined) return message.result
  throw new Error(`HTTP ${status}: ${message.error?.message ?? body}`)
}

function assertCompletes(result: Result, id: number): void {
  const isExpected =
    result.resultType === 'complete' && result.content?.[0]?.text === resultFor(id, RESOLUTION)
  if (!isExpected) throw unexpected(result)
}

function unexpected(result: Result): Error {
  return new Error(`unexpected result ${JSON.stringify(result)}`)
}
