import { describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { useCliHome, useDesk } from '../support/use-cli.ts'

const desk = useDesk()
const home = useCliHome()

describe('--answers', () => {
  const script = async (tool: readonly string[], answers: unknown, ...options: string[]) => {
    const input = JSON.stringify(answers)
    return home.run(['call', desk.url, ...tool, '--answers', '-', ...options], { input })
  }

  it('answers questions by key, in any order', async () => {
    const ran = await script(['pair'], {
      right: { value: 'east' },
      left: { action: 'accept', content: { value: 'west' } },
    })
    expect(ran).toMatchObject({ code: 0, stdout: 'west and east\n' })
  })

  it('accepts "decline" and "cancel" as answers', async () => {
    expect(await script(['choose'], { who: 'decline' })).toMatchObject({
      code: 0,
      stdout: 'nobody (decline)\n',
    })
    expect(await script(['choose'], { who: { action: 'cancel' } })).toMatchObject({
      stdout: 'nobody (cancel)\n',
    })
  })

  it('exits with 4 if an answer is missing, and stores nothing', async () => {
    const ran = await script(['pair'], { left: { value: 'west' } })
    expect(ran).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    expect(ran.stderr).toContain('No answer for "right"')
    expect(home.files()).toEqual([])
  })

  it('exits with 4 if an answer was not used, after printing the result', async () => {
    const ran = await script(['choose'], { who: { name: 'Ada' }, why: { reason: 'x' } })
    expect(ran).toMatchObject({ code: EXITS.answers.code, stdout: 'hello Ada\n' })
    expect(ran.stderr).toContain('Unused answers: "why"')
  })

  it('exits with 4 if an answer is invalid or names an unknown field', async () => {
    for (const who of [{ name: 5 }, { nam: 'Ada' }, 'accept', 7]) {
      expect(await script(['choose'], { who })).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    }
  })

  it('leaves missing answers for later with --detach', async () => {
    const ran = await script(['pair'], { left: { value: 'west' } }, '--detach', '--json')
    expect(ran.code).toBe(EXITS.pending.code)
    const { id } = JSON.parse(ran.stdout) as { id: string }
    expect(await home.run(['answer', id, 'right.value=east'])).toMatchObject({ stdout: 'west and east\n' })
  })
})
