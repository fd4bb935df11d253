/**
 * Finds a tool that asks, and examines the state of its rounds; and the tasks of a server: how it responds to an unknown task, and, if
 * the named tool becomes a task, whether its id can be guessed, whether another user can read it, and whether it can be cancelled. It
 * leaves the task cancelled.
 */

import { RondoError } from 'rondo'
import type { Client, Mode, Tool, ToolRequest } from 'rondo/client'
import { PeerError } from 'rondo/client'
import { isRecord, TASKS_EXTENSION } from 'rondo/internal'
import { type Invocation, noTool, usageError } from '../command-line.ts'
import { openConnection } from '../connection.ts'
import { type NamedTarget, readArgs } from '../words.ts'
import { attempt, begin, type DoctorFinding, fail, type Probe, pass, skip, warn } from './probe.ts'
import { checkCall } from './protocol.ts'
import { checkState } from './state.ts'

export interface ExaminedCall {
  readonly invocation: Invocation
  readonly target: NamedTarget
  readonly client: Client
  /** The arguments of the tool, as typed. */
  readonly words: readonly string[]
  /** Reads the raw results of calls, if the revision requires more of them than the client checks. */
  readonly probe?: Probe
}

export async function examineState({
  invocation,
  target,
  client,
  words,
  probe,
}: ExaminedCall): Promise<readonly DoctorFinding[]> {
  const { io, options } = invocation
  const tools = await listTools(invocation, client)
  const tool = await chooseTool(invocation, client, tools)
  if (tool === undefined)
    return [skip('state', 'no tool that asks was found', 'Name a tool that asks: --tool NAME name=value')]
  const args = readArgs(words, tool.inputSchema)
  const request: ToolRequest = { method: 'tools/call', name: tool.name, arguments: args }
  const others = options.list('other')
  const seconds = options.number('wait')
  const headers = options.list('other-header')
  const stranger =
    headers.length === 0
      ? undefined
      : await openConnection(io, target, options, {
          headers,
          tasks: false,
          mode: client.protocolVersion as Mode,
        })
  try {
    const shape = probe === undefined ? [] : await checkCall(probe, request)
    const exam = {
      ...{ client, tool, request, signal: io.signal, now: io.now },
      otherTool: findOther(invocation, tools, tool),
      ...(stranger && { otherUser: stranger.client }),
      ...(others.length > 0 && { otherArguments: readArgs(others, tool.inputSchema, args) }),
      ...(seconds !== undefined && { waitMs: seconds * 1000 }),
    }
    return [...shape, ...(await attempt('state', io.signal, () => checkState(exam)))]
  } finally {
    await stranger?.close()
  }
}

/** Returns an empty list if the tools cannot be listed; another check reports that. */
async function listTools({ io }: Invocation, client: Client): Promise<readonly Tool[]> {
  if (client.server.capabilities.tools === undefined) return []
  try {
    return await client.listTools({ signal: io.signal })
  } catch (error) {
    if (io.signal.aborted || !(error instanceof RondoError)) throw error
    return []
  }
}

/** The tool with this name. A server that lists no tools may still have it. */
function namedTool(tools: readonly Tool[], name: string): Tool {
  if (tools.length === 0) return { name, inputSchema: { type: 'object' } }
  const tool = tools.find((one) => one.name === name)
  if (tool === undefined) throw noTool(name, tools)
  return tool
}

/** The tool that was named, or else the first read-only one that needs no arguments and asks. */
async function chooseTool(
  { io, options }: Invocation,
  client: Client,
  tools: readonly Tool[],
): Promise<Tool | undefined> {
  const name = options.text('tool')
  if (name !== undefined) return namedTool(tools, name)
  for (const tool of tools.filter(isHarmless).slice(0, 5)) {
    const request = requestOf(tool)
    const asked = await begin({ client, request, signal: io.signal }, request)
    if (typeof asked !== 'string') return tool
  }
  return undefined
}

function findOther({ options }: Invocation, tools: readonly Tool[], own: Tool): ToolRequest | undefined {
  const name = options.text('other-tool')
  const words = options.list('other-tool-arg')
  if (name === undefined) {
    if (words.length > 0) throw usageError('Name the tool that these arguments are for: --other-tool NAME')
    const tool = tools.find((one) => one !== own && isHarmless(one))
    return tool && requestOf(tool)
  }
  const tool = namedTool(tools, name)
  return { method: 'tools/call', name, arguments: readArgs(words, tool.inputSchema) }
}

function isHarmless({ annotations, inputSchema }: Tool): boolean {
  const { required } = inputSchema
  const needs = Array.isArray(required) && required.length > 0
  return isRecord(annotations) && annotations.readOnlyHint === true && !needs
}

function requestOf({ name }: Tool): ToolRequest {
  return { method: 'tools/call', name, arguments: {} }
}

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
