/**
 * Examines the tasks of a server: how it responds to an unknown task, and, if the named tool becomes a task, whether its id
 * can be guessed, whether another user can read it, and whether it can be cancelled. It leaves the task cancelled.
 */

import type { Client } from '../../client/client.ts'
import type { Mode } from '../../client/connect.ts'
import { PeerError } from '../../client/peer.ts'
import type { ToolRequest } from '../../client/pending.ts'
import { isRecord } from '../../lib/json.ts'
import { TASKS_EXTENSION } from '../../protocol/reply.ts'
import { openConnection } from '../connection.ts'
import { readArgs } from '../typed-args.ts'
import type { ExaminedCall } from './examine.ts'
import { attempt, type DoctorFinding, fail, pass, skip, warn } from './report.ts'

const UNKNOWN_TASK = -32602

export async function examineTasks(call: ExaminedCall): Promise<DoctorFinding[]> {
  const { invocation, target, client } = call
  const { io, options } = invocation
  const { extensions } = client.server.capabilities
  if (!isRecord(extensions) || extensions[TASKS_EXTENSION] === undefined) return []
  const open = (headers: readonly string[]) =>
    openConnection(io, target, options, { headers, mode: client.protocolVersion as Mode })
  const owner = await open([])
  try {
    const unknown = await attempt('task-unknown', io.signal, () => checkUnknown(owner.client, io.signal))
    const name = options.text('tool')
    if (name === undefined) {
      return [...unknown, skip('task', 'no tool was named', 'Name a tool that becomes a task: --tool NAME')]
    }
    const taskId = await makeTask(owner.client, name, call)
    if (taskId === undefined) return [...unknown, skip('task', `${name} does not become a task`)]
    const user = await checkOther(taskId, options.list('other-header'), open, io.signal)
    return [...unknown, checkId(taskId), user, await checkCancel(owner.client, taskId, io.signal)]
  } finally {
    await owner.close()
  }
}

async function checkUnknown(client: Client, signal: AbortSignal): Promise<DoctorFinding> {
  const refused = await refusalOf(client.task(crypto.randomUUID()).get({ signal }))
  if (refused?.peer.code === UNKNOWN_TASK)
    return pass('task-unknown', `an unknown task is refused with ${UNKNOWN_TASK}`)
  const detail = `an unknown task returns ${refused === undefined ? 'a result' : `error ${refused.peer.code}`}`
  return (refused === undefined ? fail : warn)('task-unknown', detail, `Respond with error ${UNKNOWN_TASK}.`)
}

/** The error that the server returned; undefined if it returned a result. */
async function refusalOf(request: Promise<unknown>): Promise<PeerError | undefined> {
  try {
    await request
    return undefined
  } catch (error) {
    if (error instanceof PeerError) return error
    throw error
  }
}

async function makeTask(
  client: Client,
  name: string,
  { words, invocation }: ExaminedCall,
): Promise<string | undefined> {
  const { signal } = invocation.io
  const tool = (await client.listTools({ signal })).find((one) => one.name === name)
  if (tool === undefined) return undefined
  const request: ToolRequest = { method: 'tools/call', name, arguments: readArgs(words, tool.inputSchema) }
  const step = await client.start(request, { accepts: ['form', 'url'], signal })
  return step.status === 'complete' ? undefined : step.pending.task?.taskId
}

const MIN_ID = 16

function checkId(taskId: string): DoctorFinding {
  if (taskId.length >= MIN_ID && !/^\d+$/.test(taskId)) {
    return pass('task-id', `the id of a task has ${taskId.length} characters`)
  }
  const advice =
    'Use random ids of 128 bits or more: anyone who knows the id of a task may be able to use it.'
  return warn('task-id', 'the id of a task can be guessed', advice)
}

async function checkOther(
  taskId: string,
  headers: readonly string[],
  open: (headers: readonly string[]) => ReturnType<typeof openConnection>,
  signal: AbortSignal,
): Promise<DoctorFinding> {
  if (headers.length === 0) {
    const advice = 'Pass the headers of another user: --other-header "Name: value"'
    return skip('task-user', 'no second user was given', advice)
  }
  const { client, close } = await open(headers)
  try {
    const refused = await refusalOf(client.task(taskId).get({ signal }))
    if (refused !== undefined)
      return pass('task-user', `a task of another user is refused with ${refused.peer.code}`)
    const advice = 'Bind a task to the authenticated principal that created it.'
    return fail('task-user', 'a task of one user can be read by another', advice)
  } finally {
    await close()
  }
}

async function checkCancel(client: Client, taskId: string, signal: AbortSignal): Promise<DoctorFinding> {
  const task = client.task(taskId)
  const refused = await refusalOf(task.cancel({ signal }))
  if (refused !== undefined) {
    const detail = `tasks/cancel returns error ${refused.peer.code} ${refused.peer.message}`
    return warn(
      'task-cancel',
      detail,
      'Accept tasks/cancel for every task of its owner, even one that has ended.',
    )
  }
  const { status } = await task.get({ signal })
  return pass('task-cancel', `after tasks/cancel, the status of the task is ${status}`)
}
