/** The whole server in front of a store: HTTP, the protocol, sealing, the engine. */

import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Table } from '../bench.ts'
import type { Response } from '../load/connection.ts'
import { drive, type Exchange } from '../load/drive.ts'
import { httpRequest } from '../load/http-request.ts'
import { messageOf } from '../message-of.ts'
import { fixed, median } from '../stat.ts'
import { resultFor } from '../work.ts'
import type { Databases } from './database.ts'
import type { Completed, Listening } from './server-child.ts'

export const PLAIN_TOOL = 'resolve_now'
export const TASK_TOOL = 'resolve_later'

const CHILD = fileURLToPath(new URL('./server-child.js', import.meta.url))

export interface ServerFigures {
  readonly database: string
  /** Calls a second, one figure for each round; a call as a task counts when the task has completed. */
  readonly plain: number[]
  readonly task: number[]
  readonly get: number[]
}

export async function measureServer(
  databases: Databases,
  { rounds, calls }: { rounds: number; calls: number },
): Promise<ServerFigures> {
  const child = fork(CHILD, [JSON.stringify(databases.create())])
  try {
    const url = new URL((await messageOf<Listening>(child, 'listening')).url)
    const figures = { database: databases.name, plain: [], task: [], get: [] } satisfies ServerFigures
    const ids: string[] = []
    let begun = 0
    const completed = (): Promise<unknown> => {
      const told = messageOf<Completed>(child, 'completed')
      child.send(begun)
      return told
    }
    const begin = (index: number): Exchange => {
      begun++
      return beginTask(url, index, ids)
    }
    for (let round = 0; round <= rounds; round++) {
      const plain = await rate(url, calls, (index) => callTool(url, index))
      const task = await rate(url, calls, begin, completed)
      const get = await rate(url, calls, (index) => getTask(url, ids[index % ids.length] ?? '', index))
      // The first round is the warm-up.
      if (round > 0) for (const [list, value] of pairs(figures, [plain, task, get])) list.push(value)
    }
    return figures
  } finally {
    child.disconnect()
  }
}

function pairs({ plain, task, get }: ServerFigures, values: readonly number[]): [number[], number][] {
  return [plain, task, get].map((list, i) => [list, values[i] ?? Number.NaN])
}

/** Exchanges a second; `ends` is awaited before the first and after the last. */
async function rate(
  url: URL,
  count: number,
  exchangeAt: (index: number) => Exchange,
  ends: () => Promise<unknown> = async () => {},
): Promise<number> {
  let began = 0
  await drive(url, count, exchangeAt, async () => {
    await ends()
    began = performance.now()
  })
  await ends()
  return (1_000 * count) / (performance.now() - began)
}

const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} } }
const _meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': capabilities,
  'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1.0.0' },
}

interface Result {
  readonly content?: readonly { readonly text?: string }[]
  readonly taskId?: string
  readonly resultType?: string
  readonly status?: string
}

function callTool(url: URL, id: number): Exchange {
  const params = { name: PLAIN_TOOL, arguments: { id }, _meta }
  return {
    request: httpRequest(url, { id, method: 'tools/call', name: PLAIN_TOOL, params }),
    check: (response) => expect(response, ({ content }) => content?.[0]?.text === resultFor(id, 'Fixed')),
  }
}

function beginTask(url: URL, id: number, ids: string[]): Exchange {
  const params = { name: TASK_TOOL, arguments: { id }, _meta }
  return {
    request: httpRequest(url, { id, method: 'tools/call', name: TASK_TOOL, params }),
    check: (response) =>
      expect(response, ({ resultType, taskId = '' }) => {
        ids[id] = taskId
        return resultType === 'task' && taskId !== ''
      }),
  }
}

function getTask(url: URL, taskId: string, id: number): Exchange {
  return {
    request: httpRequest(url, { id, method: 'tasks/get', name: taskId, params: { taskId, _meta } }),
    check: (response) => expect(response, ({ status }) => status === 'completed'),
  }
}

function expect({ body }: Response, isRight: (result: Result) => boolean): void {
  const { result } = JSON.parse(body) as { result?: Result }
  if (result === undefined || !isRight(result)) throw new Error(`Unexpected response: ${body}`)
}

export function serverTable(figures: readonly ServerFigures[]): Table {
  return {
    title: 'Requests a second through the whole server, HTTP and sealing included, one process',
    mark: 'tasks-server',
    columns: ['database', 'tools/call at once', 'tools/call as a task', 'tasks/get'],
    rows: figures.map(({ database, plain, task, get }) => [
      database,
      fixed(median(plain)),
      fixed(median(task)),
      fixed(median(get)),
    ]),
  }
}
