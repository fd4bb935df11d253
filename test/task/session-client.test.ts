/** Our client follows tasks of 2025-11-25: it requests them, polls, waits for the result, and answers meanwhile. */

import {
  type ConnectOptions,
  connect,
  type ElicitResult,
  type FormHandler,
  parsePending,
  type TaskState,
} from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { abortTask } from '../support/abort-task.ts'
import { processFile } from '../support/process-file.ts'
import { scriptSession } from '../support/scripted-session.ts'
import { createTaskServer } from '../support/task-server.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

const form: FormHandler = ({ requestedSchema }) => {
  const asksYes = 'confirm' in ((requestedSchema.properties ?? {}) as object)
  return { action: 'accept', content: asksYes ? { confirm: true } : { name: 'Ada' } } as ElicitResult
}
const answers: ConnectOptions['answers'] = {
  elicitation: { form },
  sampling: () => ({ role: 'assistant', content: { type: 'text', text: 'Rest.' }, model: 'm' }),
  roots: [{ uri: 'file:///srv' }],
}
const mode = '2025-11-25'
const taskTtlMs = 60_000
const textOf = (result: object) => (result as { content: { text: string }[] }).content[0]?.text ?? ''

async function serve(options: Parameters<typeof createTaskServer>[0] = {}) {
  const server = createTaskServer(options)
  const { url } = await server.listen({ port: 0, signals: false })
  closers.push(() => server.close())
  return url
}

async function open(target: Parameters<typeof connect>[0], options: ConnectOptions = {}) {
  const client = await connect(target, { mode, answers, ...options })
  closers.push(() => client.close())
  return client
}

const stdio = {
  command: process.execPath,
  args: [processFile('test/support/task-stdio.ts')],
  stderr: 'ignore',
} as const

describe.each([
  ['HTTP', () => serve()],
  ['stdio', async () => stdio],
] as const)('a client of 2025-11-25 over %s', (_name, target) => {
  it('C5 D10 F1 requests a task, polls it, answers what is pushed, and returns the result in one call', async () => {
    const client = await open(await target())
    const seen: string[] = []
    const onTask = ({ status }: TaskState) => void seen.push(status)
    const result = await client.callTool('greet', {}, { taskTtlMs, onTask })
    expect(textOf(result)).toBe('Hello Ada, true')
    expect(seen).toContain('input_required')
    expect(seen.at(-1)).toBe('completed')
  })

  it('C5 answers the sampling and roots requests of a task with their handlers', async () => {
    const client = await open(await target())
    await client.listTools()
    expect(JSON.parse(textOf(await client.callTool('consult')))).toEqual({
      idea: { role: 'assistant', content: { type: 'text', text: 'Rest.' }, model: 'm' },
      roots: [{ uri: 'file:///srv' }],
    })
  })

  it('C4 keeps the questions of two tasks apart', async () => {
    const asked: string[] = []
    const client = await open(await target(), {
      answers: {
        elicitation: {
          form(params, info) {
            asked.push(JSON.stringify([info.request, params.message]))
            return form(params, info)
          },
        },
      },
    })
    const call = (who: string) => client.callTool('greet', { who }, { taskTtlMs })
    const results = await Promise.all([call('one'), call('two')])
    expect(results.map(textOf)).toEqual(['Hello Ada, true', 'Hello Ada, true'])
    for (const who of ['one', 'two']) {
      expect(asked.filter((one) => one.includes(`"who":"${who}"`))).toHaveLength(2)
    }
  })
})

describe('a client of 2025-11-25', () => {
  it('D1 detects that a tool runs only as a task', async () => {
    const client = await open(await serve())
    expect(textOf(await client.callTool('only'))).toBe('as a task')
  })

  it('requests no task for a tool that cannot run as one, or from a server without tasks', async () => {
    const client = await open(await serve())
    expect(textOf(await client.callTool('never', {}, { taskTtlMs }))).toBe('at once')
    const plain = scriptSession({ version: mode, capabilities: { tools: {} } })
    const other = await open(plain)
    await other.callTool('any', {}, { taskTtlMs })
    const { message } = await plain.next((one) => one.message.method === 'tools/call')
    expect(message.params).toEqual({ name: 'any', arguments: {} })
  })

  it('returns the result of a failed tool, as the call would have', async () => {
    const client = await open(await serve())
    expect(await client.callTool('fails', {}, { taskTtlMs })).toMatchObject({
      isError: true,
      content: [{ text: 'The printer is on fire' }],
    })
  })

  it('C11 stores a call as JSON and finishes it in another session', async () => {
    const url = await serve()
    const first = await open(url)
    const begun = await first.start({ method: 'tools/call', name: 'greet' }, { taskTtlMs })
    if (begun.status !== 'task') throw new Error(begun.status)
    const stored = JSON.stringify(begun.pending)
    await first.close()
    const second = await open(url)
    expect(textOf(await second.finish(parsePending(stored)))).toBe('Hello Ada, true')
  })

  it('C7 fails clearly if there is no handler, and does not cancel a task that it only waited for', async () => {
    const url = await serve()
    const client = await open(url, { answers: {} })
    const { elicitation: _, ...others } = answers
    await expect(client.callTool('greet', {}, { taskTtlMs })).resolves.toMatchObject({ isError: true })
    const asker = await open(url)
    const begun = await asker.start({ method: 'tools/call', name: 'greet' }, { taskTtlMs })
    await expect(client.resume(begun.status === 'task' ? begun.pending : fail())).rejects.toMatchObject({
      code: 'INPUT_PENDING',
    })
    const other = await open(url, { answers: others })
    const pending = begun.status === 'task' ? begun.pending : fail()
    await expect(other.resume(pending)).rejects.toMatchObject({ code: 'INPUT_PENDING' })
    expect(textOf(await asker.finish(pending))).toBe('Hello Ada, true')
  })

  it('C12 D8 cancels the task when the caller aborts', async () => {
    const client = await open(await serve())
    const taskId = await abortTask(client, { taskTtlMs })
    expect(await client.task(taskId).get()).toMatchObject({ status: 'cancelled' })
    await client.task(taskId).cancel()
    await expect(client.task('AAAAAAAAAAAAAAAAAAAAAA').cancel()).rejects.toMatchObject({ code: 'PEER_ERROR' })
  })

  it('C8 counts the questions of a task against its rounds', async () => {
    const client = await open(await serve(), { maxRounds: 1 })
    await expect(client.callTool('greet', {}, { taskTtlMs })).rejects.toMatchObject({
      code: 'LIMIT_CLIENT_ROUNDS',
    })
  })

  it('says how to answer a task that asks', async () => {
    const client = await open(await serve())
    const begun = await client.start({ method: 'tools/call', name: 'greet' }, { taskTtlMs })
    const task = client.task((begun.status === 'task' && begun.pending.task?.taskId) || '')
    await expect.poll(async () => (await task.get()).status).toBe('input_required')
    await expect(task.answer({})).rejects.toMatchObject({ code: 'PEER_REVISION' })
    await task.cancel()
  })

  it('polls no more often than the server allows, and keeps polling if the wait is interrupted', async () => {
    const heard: string[] = []
    const statuses = ['working', 'input_required', 'working', 'completed']
    const task = (status: string | undefined) => ({
      taskId: 't1',
      status,
      createdAt: '2026-01-01T00:00:00Z',
      lastUpdatedAt: '2026-01-01T00:00:00Z',
      ttl: null,
      pollInterval: 80,
    })
    let waits = 0
    const server = scriptSession({
      version: mode,
      capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
      onCall({ message, send, end, result }) {
        heard.push(String(message.method))
        const reply = (value: object) => {
          send({ id: message.id, result: value })
          end()
        }
        if (message.method === 'tools/list') {
          const tool = {
            name: 'slow',
            inputSchema: { type: 'object' },
            execution: { taskSupport: 'optional' },
          }
          return reply({ tools: [tool] })
        }
        if (message.method === 'tools/call') return reply({ task: task('working') })
        if (message.method === 'tasks/get') return reply(task(statuses.shift()))
        waits += 1
        // The first wait for the result ends with the connection.
        return waits === 1 ? end() : result('done')
      },
    })
    const client = await open(server)
    const began = Date.now()
    expect(textOf(await client.callTool('slow', {}, { taskTtlMs }))).toBe('done')
    expect(Date.now() - began).toBeGreaterThanOrEqual(4 * 80)
    expect(heard.filter((one) => one === 'tasks/get')).toHaveLength(4)
    expect(waits).toBe(2)
  })
})

function fail(): never {
  throw new Error('The call did not become a task')
}
