/** `rondo task`, in both dialects that have tasks of their own: looked at, answered and cancelled by other processes. Needs the build. */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { serveTasks } from '../support/task-desk.ts'
import { useCliHome, useTaskDesk } from '../support/use-cli.ts'

const home = useCliHome()
const desk = useTaskDesk(home)
const { detach, see } = desk

describe.each([
  ['2026-07-28', []],
  ['DRAFT-2026-v1', ['--revision', 'DRAFT-2026-v1']],
])('a task in %s', (version, revision) => {
  it('is printed with its own id and that of its call when it is left to the server', async () => {
    const { stdout, code } = await home.run(['call', desk.url, 'hang', '--detach', ...revision])
    const id = /^pending (\S+)$/m.exec(stdout)?.[1] ?? ''
    const taskId = /as the task (\S+)\.$/m.exec(stdout)?.[1] ?? ''
    expect(code).toBe(EXITS.pending.code)
    expect(stdout).toContain(`rondo task get ${id}`)
    const shown = await see('working', id)
    expect(shown.task.taskId).toBe(taskId)
    expect(shown).toMatchObject({ id, server: { name: 'tasks', target: desk.url, protocolVersion: version } })
    expect((await home.json(['task', 'get', taskId])).value).toMatchObject({ id })
    expect((await home.json(['task', 'get', id.slice(0, 5)])).value).toMatchObject({ id })
    const cancelled = await home.json(['task', 'cancel', taskId])
    expect(cancelled).toMatchObject({ code: 0, value: { task: { taskId, status: 'cancelled' } } })
    expect(home.files()).toEqual([])
    const again = await home.run(['task', 'cancel', desk.url, taskId, ...revision])
    expect(again).toMatchObject({ code: 0, stderr: 'The task had already ended.\n' })
  })

  it('that began elsewhere is answered by its server and id, question by question', async () => {
    const { id, taskId } = await detach('ask', ...revision)
    const there = [desk.url, taskId, ...revision]
    await see('input_required', ...there)
    const shown = await home.run(['task', 'get', ...there])
    expect(shown.stdout).toContain('who  For whom?')
    expect(shown.stdout).toContain(`rondo task answer ${desk.url} ${taskId} who=…`)
    expect(shown.code).toBe(EXITS.pending.code)
    const first = await home.run(['task', 'answer', ...there, 'who.name=Ada'])
    expect(first).toMatchObject({ code: 0, stderr: expect.stringContaining('Answered: who') })
    await expect
      .poll(async () => (await home.run(['task', 'get', ...there])).stdout, { timeout: 120_000 })
      .toContain('Really for Ada?')
    const file = JSON.stringify({ sure: { confirm: true } })
    const second = await home.run(['task', 'answer', ...there, '--answers', '-'], { input: file })
    expect(second.code).toBe(0)
    expect((await see('completed', ...there)).task).toMatchObject({ result: { content: [{}] } })
    const done = await home.run(['task', 'get', ...there])
    expect(done.stdout).toMatch(/status +completed[\s\S]*\n\nreport for Ada\n$/)
    expect(done.code).toBe(0)
    expect(await home.run(['resume', id])).toMatchObject({ code: 0, stdout: 'report for Ada\n' })
    expect(home.files()).toEqual([])
  })

  it('of a stored call is answered once, and "rondo resume" awaits the result', async () => {
    const { id } = await detach('ask', ...revision)
    await see('input_required', id)
    expect((await home.run(['task', 'answer', id, 'name=Ada'])).code).toBe(0)
    const next = await home.json(['resume', id])
    expect(Object.keys(next.value.questions as object)).toEqual(['sure'])
    expect((await home.run(['task', 'answer', id, '--decline'])).code).toBe(0)
    expect(await home.run(['resume', id])).toMatchObject({ code: 0, stdout: 'no report\n' })
  })

  it('is not awaited with --detach, even after it was answered', async () => {
    const { id } = await detach('ask', ...revision)
    await see('input_required', id)
    const asked = await home.json(['resume', id])
    expect(asked.value).toMatchObject({ status: 'input_required', questions: { who: {} } })
    const left = await home.json(['answer', id, 'who.name=Ada', '--detach'])
    expect([left.code, left.value.status]).toEqual([EXITS.pending.code, 'task'])
    expect((await home.json(['resume', id, '--detach'])).value.status).toBe('task')
    expect((await home.json(['resume', id])).value.questions).toMatchObject({ sure: {} })
  })

  it('that does not exist is reported in one sentence', async () => {
    const kept = await home.run(['task', 'get', 'nosuchtask'])
    expect(kept).toMatchObject({ code: EXITS.stored.code, stdout: '' })
    expect(kept.stderr).toMatch(/^rondo: No pending call [^\n]* rondo task get <server> <taskId>\n$/)
    for (const action of ['get', 'answer', 'cancel']) {
      const words = action === 'answer' ? ['who.name=Ada'] : []
      const ran = await home.run(['task', action, desk.url, 'nosuchtask', ...words, ...revision])
      expect(ran).toMatchObject({ code: EXITS.stored.code, stdout: '' })
      expect(ran.stderr).toMatch(/^rondo: "tasks" has no task nosuchtask: [^\n]*\n$/)
    }
  })
})

describe('a task', () => {
  it('whose tool failed exits with 1, and one without questions cannot be answered', async () => {
    const { id } = await detach('breaks')
    await see('completed', id)
    expect(await home.run(['task', 'get', id])).toMatchObject({ code: EXITS.failed.code })
    const ran = await home.run(['task', 'answer', id, 'who.name=Ada'])
    expect(ran).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    expect(ran.stderr).toContain('The task has no open questions; its status is completed')
  })

  it('that was cancelled elsewhere ends its call, which is no longer stored', async () => {
    const { id, taskId } = await detach('hang')
    expect((await home.run(['task', 'cancel', desk.url, taskId])).code).toBe(0)
    expect((await home.run(['task', 'get', id])).code).toBe(EXITS.server.code)
    const ran = await home.run(['resume', id])
    expect(ran).toMatchObject({ code: EXITS.server.code, stdout: '' })
    expect(ran.stderr).not.toContain('rondo resume')
    expect(home.files()).toEqual([])
  })

  it('that its server no longer knows can be abandoned', async () => {
    const begun = await detach('hang')
    const other = await serveTasks()
    expect(await home.run(['task', 'get', begun.id, '--server', other.url])).toMatchObject({
      code: EXITS.stored.code,
      stdout: '',
    })
    const path = join(home.path, 'pending', `${begun.id}.json`)
    writeFileSync(path, readFileSync(path, 'utf8').replaceAll(desk.url, other.url))
    expect((await home.run(['abandon', begun.id])).code).toBe(0)
    expect(home.files()).toEqual([])
    await other.close()
  })

  it('D1 is requested with --task-ttl in revisions where clients request tasks', async () => {
    const words = ['call', desk.url, 'either', '--revision', 'DRAFT-2026-v1']
    expect(await home.run(words)).toMatchObject({ code: 0, stdout: 'either way\n' })
    const { value } = await home.json([...words, '--detach', '--task-ttl', '60'])
    expect(value).toMatchObject({ status: 'task', task: { ttlMs: 60_000 } })
  })

  it('T22 has its questions cleaned, and is refused if one asks for a secret', async () => {
    const { id } = await detach('link')
    await see('input_required', id)
    const { stdout } = await home.run(['task', 'get', id])
    expect(stdout).toContain('page  Connect\n    https://example.com/connect')
    const login = await detach('login')
    await see('input_required', login.id)
    expect((await home.run(['task', 'get', login.id])).stdout).toContain('The questions are not shown')
    expect(await home.run(['task', 'answer', login.id, 'password=x'])).toMatchObject({
      code: EXITS.refused.code,
      stdout: '',
    })
  })

  it('is shown without a terminal and answers, and nothing is sent', async () => {
    const { id } = await detach('ask')
    await see('input_required', id)
    const ran = await home.run(['task', 'answer', id])
    expect(ran).toMatchObject({ code: EXITS.pending.code, stderr: '' })
    expect(ran.stdout).toContain(`rondo task answer ${id} who=…`)
    const wrong = await home.run(['task', 'answer', id, '--answers', '-'], { input: '{"why":{"name":"x"}}' })
    expect(wrong).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    expect((await see('input_required', id)).task.inputRequests).toMatchObject({ who: {} })
  })

  it('is refused for a call that is not a task, and for missing or extra arguments', async () => {
    const { value } = await home.json(['call', desk.url, 'rounds'])
    const ran = await home.run(['task', 'get', String(value.id)])
    expect(ran).toMatchObject({ code: EXITS.stored.code, stderr: expect.stringContaining('is not a task') })
    expect((await home.run(['task'])).code).toBe(EXITS.usage.code)
    expect((await home.run(['task', 'stop', 'x'])).code).toBe(EXITS.usage.code)
    expect((await home.run(['task', 'get'])).code).toBe(EXITS.usage.code)
    expect((await home.run(['task', 'get', desk.url, 'x', 'y'])).code).toBe(EXITS.usage.code)
  })

  it('is refused in revisions without tasks, with a sentence that says so', async () => {
    const ran = await home.run(['task', 'get', desk.url, 'x', '--revision', '2025-06-18'])
    expect(ran.code).not.toBe(0)
    expect(ran.stderr).toMatch(/^rondo: [^\n]+\n$/)
  })
})
