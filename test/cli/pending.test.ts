/** Calls that wait: stored, listed, answered by another process, resumed, given up. Needs the build. */

import { randomBytes } from 'node:crypto'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { generateKey } from 'rondo'
import { describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { createDeskServer } from '../support/desk-server.ts'
import { useCliHome, useDesk } from '../support/use-cli.ts'

const keys = generateKey()
const desk = useDesk(keys)
const home = useCliHome()

async function begin(...words: string[]): Promise<string> {
  const { value, code } = await home.json(['call', desk.url, ...words])
  expect(value.status).toBe('input_required')
  expect(code).toBe(EXITS.pending.code)
  return String(value.id)
}

describe('a call that needs input, without a terminal', () => {
  it('C11 is printed with its id, its questions and what to type, and exits with 3', async () => {
    const { code, stdout } = await home.run(['call', desk.url, 'choose'])
    const id = /^pending ([a-z0-9]{10})$/m.exec(stdout)?.[1]
    expect(stdout).toContain(`"desk" 1.2.3 at ${desk.url} asks, for the tool choose, round 1`)
    expect(stdout).toContain('who  Who?')
    expect(stdout).toContain(`rondo answer ${id} who=…`)
    expect(code).toBe(EXITS.pending.code)
  })

  it('is stored so that only its owner can read it, and its state is not printed', async () => {
    const { value, stdout } = await home.json(['call', desk.url, 'choose'])
    const path = join(home.path, 'pending', `${value.id}.json`)
    const { pending } = JSON.parse(readFileSync(path, 'utf8')) as { pending: { state: string } }
    expect(pending.state).toMatch(/^r1\./)
    expect(stdout).not.toContain(pending.state.slice(0, 20))
    expect(value.stateBytes).toBe(pending.state.length)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(statSync(join(home.path, 'pending')).mode & 0o777).toBe(0o700)
  })

  it('can be for a prompt or a resource too', async () => {
    const prompt = await home.json(['prompt', desk.url, 'brief'])
    const read = await home.json(['read', desk.url, 'desk://report'])
    expect([prompt.code, read.code]).toEqual([3, 3])
    expect((await home.run(['answer', String(prompt.value.id), 'tone=warm'])).stdout).toBe(
      'user: in a warm tone\n',
    )
    expect((await home.run(['answer', String(read.value.id), 'day=Monday'])).stdout).toBe(
      'report of Monday\n',
    )
    expect(home.files()).toEqual([])
  })
})

describe('rondo pending', () => {
  it('lists pending calls, and shows one', async () => {
    expect(await home.run(['pending'])).toMatchObject({ code: 0, stdout: '' })
    const id = await begin('pair')
    const { stdout } = await home.run(['pending'])
    expect(stdout).toMatch(new RegExp(`^${id}  now  pair  asks left, right  ${desk.url}\n$`))
    expect((await home.run(['pending', id.slice(0, 4)])).stdout).toContain('left  The left?')
    expect((await home.json(['pending'])).value.pending).toEqual([
      expect.objectContaining({ id, target: desk.url }),
    ])
  })

  it('lists a damaged file as damaged and does not fail', async () => {
    const id = await begin('choose')
    writeFileSync(join(home.path, 'pending', 'damaged123.json'), '{')
    const { code, stdout } = await home.run(['pending'])
    expect(stdout).toContain(id)
    expect(stdout).toMatch(/^damaged123 .*damaged$/m)
    expect(code).toBe(0)
  })
})

describe('rondo answer', () => {
  it('continues the call once everything is answered', async () => {
    const id = await begin('pair')
    const first = await home.json(['answer', id, 'left.value=west'])
    expect(first.code).toBe(EXITS.pending.code)
    expect(Object.keys(first.value.answers as object)).toEqual(['left'])
    const second = await home.run(['answer', id, 'right.value=east'])
    expect(second).toMatchObject({ code: 0, stdout: 'west and east\n' })
    expect(home.files()).toEqual([])
  })

  it('checks and converts typed answers', async () => {
    const id = await begin('order')
    const wrong = await home.run(['answer', id, 'form.count=99', 'form.name=Ada'])
    expect(wrong).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    expect(wrong.stderr).toContain('Count must be at most 9')
    expect(wrong.stderr).toContain('Mail is required')
    const words = ['name=Ada', 'email=ada@example.org', 'when=2026-12-24', 'count=3', 'weight=1', 'gift=no']
    const { stdout } = await home.run(['answer', id, ...words, 'size=Large', 'extras=salt', 'extras=oil'])
    expect(JSON.parse(stdout)).toMatchObject({ count: 3, gift: false, size: 'l', extras: ['salt', 'oil'] })
  })

  it('declines or cancels all questions or some, but not both', async () => {
    const run = async (...words: string[]) =>
      (await home.run(['answer', await begin('choose'), ...words])).stdout
    expect(await run('--decline')).toBe('nobody (decline)\n')
    expect(await run('--cancel', 'who')).toBe('nobody (cancel)\n')
    expect(await run('who=decline')).toBe('nobody (decline)\n')
    const both = await home.run(['answer', await begin('choose'), '--decline', '--cancel'])
    expect(both.code).toBe(EXITS.usage.code)
  })

  it('C14 agrees to open a URL only with an explicit accept', async () => {
    const id = await begin('connect')
    expect(await home.run(['answer', id, 'page=yes'])).toMatchObject({ code: EXITS.answers.code })
    expect(await home.run(['answer', id, 'page=accept'])).toMatchObject({ code: 0, stdout: 'visited\n' })
  })

  it.each([
    [['nobody.name=x'], EXITS.answers.code],
    [['left.value'], EXITS.usage.code],
    [[], EXITS.usage.code],
    [['--decline', 'middle'], EXITS.answers.code],
  ])('refuses %j and does not change the call', async (words, code) => {
    const id = await begin('pair')
    expect(await home.run(['answer', id, ...words])).toMatchObject({ code, stdout: '' })
    expect((await home.json(['pending', id])).value.answers).toEqual({})
  })

  it('sends nothing with --hold; "rondo resume" sends the answers', async () => {
    const id = await begin('choose')
    expect(await home.run(['answer', id, 'who.name=Ada', '--hold'])).toMatchObject({
      code: EXITS.pending.code,
    })
    expect((await home.run(['pending'])).stdout).toContain('answered, not sent')
    expect(await home.run(['resume', id])).toMatchObject({ code: 0, stdout: 'hello Ada\n' })
  })

  it('keeps the answers when the server cannot be reached', async () => {
    const other = await createDeskServer(keys).listen({ port: 0, signals: false })
    const { value } = await home.json(['call', other.url, 'choose'])
    const id = String(value.id)
    await other.close()
    const lost = await home.run(['answer', id, 'who.name=Ada'])
    expect(lost).toMatchObject({ code: EXITS.unreachable.code, stdout: '' })
    expect((await home.json(['pending', id])).value.answers).toMatchObject({ who: { action: 'accept' } })
    const again = await createDeskServer(keys).listen({ port: other.port, signals: false })
    expect(await home.run(['resume', id])).toMatchObject({ code: 0, stdout: 'hello Ada\n' })
    await again.close()
  })

  it('advises to call again if the server has another key since', async () => {
    const other = await createDeskServer(keys).listen({ port: 0, signals: false })
    const { value } = await home.json(['call', other.url, 'choose'])
    const id = String(value.id)
    await other.close()
    const again = await createDeskServer(generateKey()).listen({ port: other.port, signals: false })
    const refused = await home.run(['answer', id, 'who.name=Ada'])
    await again.close()
    expect(refused).toMatchObject({ code: EXITS.server.code, stdout: '' })
    expect(refused.stderr).toContain(`rondo abandon ${id}`)
    expect(refused.stderr).not.toContain('resume')
  })
})

describe('a pending call', () => {
  it('is removed when it is abandoned', async () => {
    const id = await begin('choose')
    expect((await home.run(['abandon', id])).code).toBe(0)
    for (const command of ['resume', 'abandon', 'pending']) {
      expect(await home.run([command, id])).toMatchObject({ code: EXITS.stored.code, stdout: '' })
    }
  })

  it('is refused while another process uses it; the lock of a dead process is ignored', async () => {
    const id = await begin('choose')
    const lock = join(home.path, 'pending', `${id}.lock`)
    writeFileSync(lock, `${process.pid}\n`)
    const refused = await home.run(['answer', id, 'who.name=Ada'])
    expect(refused).toMatchObject({ code: EXITS.stored.code, stdout: '' })
    expect(refused.stderr).toContain(`in use by process ${process.pid}`)
    writeFileSync(lock, '2147483646\n')
    expect(await home.run(['answer', id, 'who.name=Ada'])).toMatchObject({ code: 0, stdout: 'hello Ada\n' })
  })

  it('C11 of a server from a file is resumed by another process with another instance', async () => {
    const file = 'test/support/desk-file.ts'
    const { value } = await home.json(['call', file, 'choose'])
    const { stdout } = await home.run(['answer', String(value.id), 'who.name=Ada'])
    expect(stdout).toBe('hello Ada\n')
    expect(statSync(join(home.path, 'keys')).mode & 0o777).toBe(0o600)
  })

  it('is encrypted if a key is given, and opens with that key only', async () => {
    const key = join(home.path, 'seal.key')
    writeFileSync(key, randomBytes(32).toString('base64'))
    const { value } = await home.json(['call', desk.url, 'delete', 'what=letters', '--seal-key', key])
    const id = String(value.id)
    const stored = readFileSync(join(home.path, 'pending', `${id}.json`), 'utf8')
    expect(stored).not.toMatch(/letters|Delete|r1\./)
    expect((await home.run(['pending'])).stdout).toContain('is encrypted')
    expect(await home.run(['answer', id, 'sure.confirm=yes'])).toMatchObject({ code: EXITS.stored.code })
    const env = { RONDO_SEAL_KEY: randomBytes(32).toString('base64') }
    expect(await home.run(['answer', id, 'sure.confirm=yes'], { env })).toMatchObject({
      code: EXITS.stored.code,
    })
    const opened = await home.run(['answer', id, 'sure.confirm=yes', '--seal-key', key])
    expect(opened).toMatchObject({ code: 0, stdout: 'deleted letters\n' })
  })

  it('T22 is checked again when it is loaded, so that changed questions are not shown', async () => {
    const id = await begin('connect')
    const path = join(home.path, 'pending', `${id}.json`)
    const changed = readFileSync(path, 'utf8').replace(
      'https://example.com/connect?x=1',
      'javascript:alert(1)',
    )
    writeFileSync(path, changed)
    expect(await home.run(['pending', id])).toMatchObject({ code: EXITS.refused.code, stdout: '' })
  })
})
