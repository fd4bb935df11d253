/** Tasks of 2025-11-25, whose questions come while somebody waits. Needs the build. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { fillIn, KEY } from '../support/terminal-session.ts'
import { useCliHome, useTaskDesk, useTerminal } from '../support/use-cli.ts'
import { serveV1, type V1Http } from '../support/v1-server.ts'
import { createV1TaskServer } from '../support/v1-task-server.ts'

const { enter, down } = KEY
const home = useCliHome()
const desk = useTaskDesk(home)
const { see } = desk
const open = useTerminal(home)

describe('a task in 2025-11-25, whose questions are pushed while a client waits', () => {
  const older = ['--revision', '2025-11-25', '--task-ttl', '60']
  let v1: V1Http
  beforeAll(async () => {
    v1 = await serveV1(createV1TaskServer)
  })
  afterAll(() => v1.close())

  it.each([
    ['ours', () => [desk.url, 'ask', ...older], 'report for Ada'],
    ['the official server', () => [v1.url, 'greet'], 'Hello, Ada, well!'],
  ])('F1 is answered at a terminal: %s', async (_who, words, last) => {
    const terminal = open('call', ...words())
    await terminal.see('the server waits for the answer')
    await fillIn(terminal, 'Name', 'Ada')
    await terminal.see('round 2;')
    if (last === 'report for Ada') {
      await terminal.see('Decline to answer')
      terminal.press(down, enter)
    } else {
      await fillIn(terminal, 'Mood', 'well')
    }
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: `${last}\n` })
  })

  it('F1 stays pending if nobody can be asked, and continues with answers from a file', async () => {
    const ran = await home.run(['call', desk.url, 'ask', ...older])
    expect(ran.code).toBe(EXITS.pending.code)
    expect(ran.stderr).toMatch(
      /^The task asks a question\. In 2025-11-25 the server sends it only to a client that waits/,
    )
    const id = /^pending (\S+)$/m.exec(ran.stdout)?.[1] ?? ''
    expect((await see('input_required', id)).server).toMatchObject({ protocolVersion: '2025-11-25' })
    const some = await home.run(['resume', id, '--answers', '-'], {
      input: JSON.stringify({ 'For whom?': { name: 'Ada' } }),
    })
    expect(some).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    expect(some.stderr).toContain('No answer for "Really for Ada?"')
    expect(some.stderr).toContain(`rondo resume ${id}`)
    const all = await home.run(['resume', id, '--answers', '-'], {
      input: JSON.stringify({ 'Really for Ada?': { confirm: true } }),
    })
    expect(all).toMatchObject({ code: 0, stdout: 'report for Ada\n' })
    expect(home.files()).toEqual([])
  })

  it('can be cancelled by its id', async () => {
    const begun = await home.json(['call', desk.url, 'hang', '--detach', ...older])
    const { taskId } = begun.value.task as { taskId: string }
    expect((await home.json(['task', 'cancel', taskId])).value).toMatchObject({
      task: { status: 'cancelled' },
    })
    const answered = await home.run(['task', 'answer', desk.url, taskId, 'a=b', '--revision', '2025-11-25'])
    expect(answered).toMatchObject({ code: EXITS.answers.code, stdout: '' })
  })
})
