/** Tasks at a terminal, a real one. Needs the build. */

import { describe, expect, it } from 'vitest'
import { fillIn, KEY } from '../support/terminal-session.ts'
import { useCliHome, useTaskDesk, useTerminal } from '../support/use-cli.ts'

const { enter, down, ctrlC } = KEY
const home = useCliHome()
const desk = useTaskDesk(home)
const { detach, see } = desk
const open = useTerminal(home)

describe('at a terminal', () => {
  it('a task is answered question by question', async () => {
    const { id } = await detach('ask')
    await see('input_required', id)
    const terminal = open('task', 'answer', id)
    await terminal.see('asks, for the tool ask')
    await terminal.see('For whom?')
    await fillIn(terminal, 'Name', 'Ada')
    expect((await terminal.end()).code).toBe(0)
  })

  it('a call that became a task shows its status, and Ctrl-C leaves it to the server', async () => {
    const terminal = open('call', desk.url, 'report')
    await terminal.see('task working: month 1 of 2')
    terminal.press(ctrlC)
    const { code, stdout, screen } = await terminal.end()
    expect([code, stdout]).toEqual([130, ''])
    expect(screen).toContain('The server continues to run the task')
    const id = /rondo resume (\S+)/.exec(screen)?.[1] ?? ''
    expect((await see('working', id)).task.statusMessage).toBe('month 1 of 2')

    const again = open('resume', id)
    await again.see('task working: month 1 of 2')
    desk.open()
    await again.see('task working: month 2 of 2')
    expect(await again.end()).toMatchObject({ code: 0, stdout: 'two months\n' })
  })

  it('the question of a task is answered within the call', async () => {
    const terminal = open('call', desk.url, 'ask')
    await fillIn(terminal, 'Name', 'Ada')
    await terminal.see('Really for Ada?')
    await terminal.see('Decline to answer')
    terminal.press(down, enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'report for Ada\n' })
  })
})
