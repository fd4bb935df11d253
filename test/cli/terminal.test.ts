/** The command at a terminal, a real one: forms filled in key by key. Needs the build. */

import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { fillIn, KEY, type TerminalSession } from '../support/terminal-session.ts'
import { useCliHome, useDesk, useTerminal } from '../support/use-cli.ts'

const { enter, down, ctrlC, ctrlD, space } = KEY
const desk = useDesk()
const home = useCliHome()
const open = useTerminal(home)

function call(...words: string[]): TerminalSession {
  return open('call', desk.url, ...words)
}

describe('a form with every kind of field', () => {
  it('is filled in and reviewed before it is sent, and an invalid number is corrected', async () => {
    const terminal = call('order')
    await terminal.see(`"desk" 1.2.3 at ${desk.url} asks, for the tool order`)
    await terminal.see('question 1 of 1, round 1')
    await terminal.see('What do you order?')
    await terminal.see('What do you want to do?')
    terminal.press(enter)
    await terminal.see('Name (text, at least 2 characters)')
    terminal.press('A', enter)
    await terminal.see('Name must have at least 2 characters')
    terminal.press('da', enter)
    await terminal.see('Mail (an e-mail address)')
    terminal.press('ada@example.org', enter)
    await terminal.see('Day (a date like 2026-07-28)')
    terminal.press('2026-12-24', enter)
    await terminal.see('Count (a whole number, 1 to 9)')
    terminal.press('12', enter)
    await terminal.see('Count must be at most 9')
    terminal.press('\u007f', enter)
    await terminal.see('Weight (a number)')
    terminal.press(enter)
    await terminal.see('Gift (yes or no)')
    terminal.press(down, enter)
    await terminal.see('Size (one of s (Small), l (Large))')
    terminal.press(down, enter)
    await terminal.see('Extras (any of')
    terminal.press(enter)
    await terminal.see('Extras needs at least 1 choice')
    await terminal.see('Extras (any of')
    terminal.press(space, down, space, enter)
    await terminal.see('Note (text, optional)')
    terminal.press(enter)
    await terminal.see('Count: 1')
    await terminal.see('Gift: yes')
    await terminal.see('Extras: SALT, PEPPER')
    await terminal.see('Note: (left out)')
    await terminal.see('Send this?')
    terminal.press(enter)
    const { code, stdout } = await terminal.end()
    expect(JSON.parse(stdout)).toEqual({
      name: 'Ada',
      email: 'ada@example.org',
      when: '2026-12-24',
      count: 1,
      weight: 2.5,
      gift: true,
      size: 'l',
      extras: ['salt', 'pepper'],
    })
    expect(code).toBe(0)
  })

  it('can be changed in the review', async () => {
    const terminal = call('trip')
    await terminal.see('What do you want to do?')
    terminal.press(enter)
    await terminal.see('From (text)')
    terminal.press('Bonn', enter)
    await terminal.see('To (text)')
    terminal.press('Rome', enter)
    await terminal.see('Send this?')
    terminal.press(down, enter)
    await terminal.see('Which one?')
    terminal.press(down, enter)
    await terminal.see('To (text)')
    terminal.press('ford', enter)
    await terminal.see('To: Romeford')
    await terminal.see('Send this?')
    terminal.press(enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'Bonn to Romeford\n' })
  })

  it('is sent without a review if its only field was filled in', async () => {
    const terminal = call('choose')
    await fillIn(terminal, 'Name', 'Bob')
    const { code, stdout, screen } = await terminal.end()
    expect(screen).not.toContain('Send this?')
    expect([code, stdout]).toEqual([0, 'hello Bob\n'])
  })
})

describe('a confirmation', () => {
  it('is not approved by Enter alone', async () => {
    const terminal = call('delete', 'what=all')
    // The question is the title of the prompt, and is asked once.
    await terminal.see('◆  Delete all?')
    await terminal.see('● No')
    await terminal.see('○ Yes, go ahead')
    await terminal.see('Later')
    terminal.press(enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'kept all\n' })
  })

  it('is approved by choosing yes', async () => {
    const terminal = call('delete', 'what=all')
    await terminal.see('Decline to answer')
    terminal.press(down, enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'deleted all\n' })
  })

  it('without fields is neither approved nor declined by Enter alone', async () => {
    const terminal = call('approve')
    await terminal.see('◆  Go ahead?')
    await terminal.see('Later')
    terminal.press(enter)
    await terminal.see('Decline? The server is told that you refuse to answer.')
    await terminal.see('● No, go back')
    terminal.press(enter)
    await terminal.see('◆  Go ahead?')
    terminal.press(enter)
    await terminal.see('Yes, decline')
    terminal.press(down, enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'answer: decline\n' })
  })

  it('of any other form is never sent by Enter alone', async () => {
    const terminal = call('choose')
    for (const words of ['What do you want to do?', 'Name (text)', 'Send this?', 'Name (text)']) {
      await terminal.see(words)
      terminal.press(enter)
    }
    await terminal.see('Send this?')
    await terminal.see('Change an answer')
    terminal.press(ctrlC)
    expect(await terminal.end()).toMatchObject({ code: 130, stdout: 'nobody (cancel)\n' })
  })
})

describe('a single choice', () => {
  it('is sent as soon as an option is chosen, and declining is among the options', async () => {
    const terminal = call('seat')
    await terminal.see('Seat (one of window, aisle)')
    await terminal.see('Decline')
    await terminal.see('Later')
    terminal.press(down, enter)
    const { code, stdout, screen } = await terminal.end()
    expect(screen).not.toMatch(/Send this\?|What do you want to do\?/)
    expect([code, stdout]).toEqual([0, 'seat: aisle\n'])
  })

  it('is reviewed after Enter alone, and the review starts on Send', async () => {
    const terminal = call('seat')
    await terminal.see('Later')
    terminal.press(enter)
    await terminal.see('Seat: window')
    await terminal.see('Send this?')
    await terminal.see('● Send')
    terminal.press(enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'seat: window\n' })
  })

  it('can be declined, or left for later', async () => {
    const declined = call('seat')
    await declined.see('Later')
    declined.press(down, down, enter)
    await declined.see('Yes, decline')
    declined.press(down, enter)
    expect(await declined.end()).toMatchObject({ code: 1 })
    const later = call('seat')
    await later.see('Later')
    later.press(down, down, down, enter)
    expect((await later.end()).code).toBe(3)
  })
})

describe('declining and cancelling', () => {
  it('a decline is confirmed, and reaches the tool', async () => {
    const terminal = call('choose')
    await terminal.see('What do you want to do?')
    await terminal.see('Decline')
    terminal.press(down, enter)
    await terminal.see('Decline? The server is told that you refuse to answer.')
    terminal.press(down, enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'nobody (decline)\n' })
  })

  it('an answer that is typed into the menu declines nothing', async () => {
    const terminal = call('choose')
    await terminal.see('Later')
    // Letters that move the cursor in other menus: j and l down, h and k up.
    terminal.press('jill', enter)
    await terminal.see('Name (text)')
    terminal.press('jill', enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'hello jill\n' })
  })

  it.each([
    ['Ctrl-C', ctrlC],
    ['Ctrl-D', ctrlD],
  ])('%s cancels the question and exits with 130', async (_name, key) => {
    const terminal = call('choose')
    await terminal.see('What do you want to do?')
    terminal.press(key)
    expect(await terminal.end()).toMatchObject({ code: 130, stdout: 'nobody (cancel)\n' })
  })

  it('Ctrl-C at the first of two questions cancels both', async () => {
    const terminal = call('pair')
    await terminal.see('question 1 of 2')
    await terminal.see('What do you want to do?')
    terminal.press(ctrlC)
    const { code, stdout, screen } = await terminal.end()
    expect(stdout).toContain('dismissed without an answer')
    expect(screen).not.toContain('question 2 of 2')
    expect(code).toBe(130)
  })

  it.each(['SIGINT', 'SIGTERM'] as const)(
    'C11 %s at a question keeps the call and exits with 130',
    async (name) => {
      const terminal = call('choose')
      await terminal.see('What do you want to do?')
      terminal.signal(name)
      await terminal.see('rondo resume')
      expect(await terminal.end()).toMatchObject({ code: 130, stdout: '' })
      expect(home.files()).toHaveLength(1)
    },
  )

  it('Ctrl-C while the server works stops waiting for it', async () => {
    const terminal = call('hang')
    await terminal.see('waiting for the server')
    terminal.press(ctrlC)
    const { code, stdout } = await terminal.end()
    expect(code).toBe(130)
    expect(stdout).toBe('')
  })
})

describe('a URL to open', () => {
  it('C14 is shown in full with its host, and is not accepted by Enter alone', async () => {
    const terminal = call('connect')
    await terminal.see('https://example.com/connect?x=1')
    await terminal.see('host: example.com')
    await terminal.see('Later')
    terminal.press(enter)
    await terminal.see('Yes, decline')
    terminal.press(down, enter)
    const { code, stdout } = await terminal.end()
    expect(stdout).not.toContain('visited')
    expect(code).toBe(1)
  })

  it('is accepted by choosing so', async () => {
    const terminal = call('connect')
    await terminal.see('I agree to open it')
    await terminal.see('Later')
    terminal.press(down, enter)
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'visited\n' })
  })
})

describe('text from a server', () => {
  it('T22 is shown without control characters, even in its log', async () => {
    const terminal = open(
      'call',
      '--server-log',
      'hostile',
      '--',
      process.execPath,
      resolve('test/support/hostile-stdio.mjs'),
    )
    await terminal.see('server: [66mlogged FORGED by stderr')
    await terminal.see('server error: "66mlogged\\nFORGED"')
    await terminal.see('What do you want to do?')
    terminal.press(enter)
    await terminal.see('The suggested answer contains characters that cannot be shown')
    terminal.press(ctrlC)
    const { drawn } = await terminal.end()
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
    expect(drawn).not.toMatch(/\u001b\[66m|[\u0080-\u009f\u202a-\u202e\u0007]|^FORGED/m)
  })
})

describe('the status line', () => {
  it('shows a bar if the server reports progress', async () => {
    const terminal = call('slow')
    await terminal.see('waiting for the server')
    await terminal.see('2/3  part 2')
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: 'finished\n' })
  })
})

describe('leaving a question for later', () => {
  it('C11 keeps the call, and "rondo resume" asks the open questions', async () => {
    const terminal = call('pair')
    await terminal.see('question 1 of 2')
    await fillIn(terminal, 'Value', 'west')
    await terminal.see('question 2 of 2')
    await terminal.see('What do you want to do?')
    await terminal.see('Later')
    terminal.press(down, down, enter)
    const { code, stdout } = await terminal.end()
    expect(code).toBe(3)
    const id = /^pending (\S+)$/m.exec(stdout)?.[1] ?? ''
    expect(stdout).toContain('already answered: left')

    const again = open('resume', id)
    await again.see('question 1 of 1, round 1')
    await again.see('The right?')
    await fillIn(again, 'Value', 'east')
    expect(await again.end()).toMatchObject({ code: 0, stdout: 'west and east\n' })
  })
})
