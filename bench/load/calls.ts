/** Calls of a client of 2026-07-28 over raw connections: plain ones, and ones that become tasks. */

import { setTimeout as sleep } from 'node:timers/promises'
import { type Connection, openConnection } from './connection.ts'
import { httpRequest } from './http-request.ts'

const _meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {
    elicitation: {},
    extensions: { 'io.modelcontextprotocol/tasks': {} },
  },
}

export interface Result {
  readonly resultType?: string
  readonly requestState?: string
  readonly taskId?: string
  readonly status?: string
  readonly pollIntervalMs?: number
}

/** Calls a tool; `more` are further parameters, such as the answers of a later round. */
export async function call(
  connection: Connection,
  url: URL,
  name: string,
  id: number,
  more: object = {},
): Promise<Result> {
  const params = { name, arguments: { id }, ...more, _meta }
  return resultOf(await connection.send(httpRequest(url, { id, method: 'tools/call', name, params })))
}

async function poll(connection: Connection, url: URL, taskId: string): Promise<Result> {
  const params = { taskId, _meta }
  return resultOf(
    await connection.send(httpRequest(url, { id: 1, method: 'tasks/get', name: taskId, params })),
  )
}

const inputResponses = { resolution: { action: 'accept', content: { resolution: 'Fixed' } } }

/** Calls a tool that asks, and answers. */
export async function callAndAnswer(
  connection: Connection,
  url: URL,
  name: string,
  id: number,
): Promise<void> {
  const { resultType, requestState } = await call(connection, url, name, id)
  if (resultType !== 'input_required') throw new Error(`Unexpected result: ${resultType}`)
  const last = await call(connection, url, name, id, { inputResponses, requestState })
  if (last.resultType !== 'complete') throw new Error(`Unexpected result: ${last.resultType}`)
}

/** Polls a task until it has this status, as often as the server says. */
export async function waitFor(
  connection: Connection,
  url: URL,
  first: Result,
  wanted: string,
): Promise<string> {
  const taskId = first.taskId ?? ''
  for (let state = first; state.status !== wanted; state = await poll(connection, url, taskId)) {
    if (state.status !== 'working') throw new Error(`Unexpected status: ${state.status}`)
    await sleep(state.pollIntervalMs)
  }
  return taskId
}

/** Answers the question of a task, and polls until it has completed. */
export async function answerTask(connection: Connection, url: URL, taskId: string): Promise<void> {
  const params = { taskId, inputResponses, _meta }
  const request = httpRequest(url, { id: 1, method: 'tasks/update', name: taskId, params })
  resultOf(await connection.send(request))
  await waitFor(connection, url, { taskId, status: 'working', pollIntervalMs: 0 }, 'completed')
}

function resultOf({ body }: { readonly body: string }): Result {
  const { result } = JSON.parse(body) as { result?: Result }
  if (result === undefined) throw new Error(`Unexpected response: ${body}`)
  return result
}

/** Calls a tool as a task and polls until it has completed, as often as the server says or without a pause. */
export async function follow(
  connection: Connection,
  url: URL,
  name: string,
  id: number,
  patient: boolean,
): Promise<number> {
  let state = await call(connection, url, name, id)
  const taskId = state.taskId ?? ''
  let reads = 0
  while (state.status !== 'completed') {
    if (state.status !== 'working') throw new Error(`Unexpected status: ${state.status}`)
    if (patient) await sleep(state.pollIntervalMs)
    state = await poll(connection, url, taskId)
    reads++
  }
  return reads
}

/** Runs `work` on `callers` connections at once until `count` have been done; returns how many a second. */
export async function rate(
  url: URL,
  callers: number,
  count: number,
  work: (connection: Connection, id: number) => Promise<unknown>,
): Promise<number> {
  const connections = await Promise.all(Array.from({ length: callers }, () => openConnection(url)))
  const began = performance.now()
  let next = 0
  await Promise.all(
    connections.map(async (connection) => {
      for (let id = next++; id < count; id = next++) await work(connection, id)
    }),
  )
  const ms = performance.now() - began
  for (const connection of connections) connection.close()
  return (1_000 * count) / ms
}
