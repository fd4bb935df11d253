/**
 * The command and servers that ask while a call waits: the official one of the first generation, over HTTP and as a process,
 * and our own where it is held to an older revision. Needs the build.
 */

import { resolve } from 'node:path'
import { serve } from '@hono/node-server'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { createServer, generateKey, type Listening, type Server } from '../../packages/rondo/src/index.ts'
import type { Ran } from '../support/run-cli.ts'
import { type Stream, scriptSession } from '../support/scripted-session.ts'
import { fillIn, KEY } from '../support/terminal-session.ts'
import { useCliHome, useTerminal } from '../support/use-cli.ts'
import { serveV1, type V1Http } from '../support/v1-server.ts'

const { enter, down, ctrlC } = KEY
const home = useCliHome()
const open = useTerminal(home)
const closing: (() => void)[] = []
let v1: V1Http
let own: Server
let listening: Listening

beforeAll(async () => {
  v1 = await serveV1()
  own = createServer({ name: 'own', version: '1', log: 'off', keys: generateKey(), turns: false })
  own.tool('delete', {}, async (_args, ctx) => ((await ctx.confirm('sure', 'Delete all?')) ? 'gone' : 'kept'))
  own.tool('link', {}, async (_args, ctx) => {
    await ctx.visit('page', { message: 'Connect', url: 'https://example.com/connect?x=1' })
    return 'visited'
  })
  listening = await own.listen({ port: 0, signals: false })
})
afterEach(() => {
  for (const close of closing.splice(0)) close()
})
afterAll(async () => {
  await v1.close()
  await own.close()
})

const OLDER = ['--revision', '2025-11-25'] as const
const command = ['--', process.execPath, '--import', resolve('node_modules/tsx/dist/loader.mjs')]
const process1 = [...command, resolve('test/support/v1-stdio.ts')]

describe('a pushed question at a terminal', () => {
  it.each([
    ['over HTTP', () => open('call', v1.url, 'greet'), () => v1.url],
    ['of a process', () => open('call', 'greet', ...process1), () => process1.slice(1).join(' ')],
  ])('C5 is asked while the server waits, %s', async (_way, call, target) => {
    const terminal = call()
    await terminal.see(`"v1" 1.32.0 at ${target()} asks, for the tool greet`.slice(0, 60))
    await terminal.see('round 1; the server waits for the answer')
    await terminal.see('Who are you?')
    await fillIn(terminal, 'Name', 'Ada')
    const { code, stdout, screen } = await terminal.end()
    expect(stdout).toBe('Hello, Ada!\n')
    expect(screen).not.toContain('Later')
    expect(code).toBe(0)
  })

  it('C5 is followed by the next one, each with its number', async () => {
    const terminal = open('call', v1.url, 'three_rounds', 'id=7')
    for (const [index, value] of ['a', 'b', 'c'].entries()) {
      await terminal.see(`round ${index + 1};`)
      await fillIn(terminal, 'Value', value)
    }
    expect(await terminal.end()).toMatchObject({ code: 0, stdout: '7: a b c\n' })
  })

  it('C5 is not approved by Enter alone, and a URL is shown in full', async () => {
    const sure = open('call', listening.url, 'delete', ...OLDER)
    await sure.see('Delete all?')
    await sure.see('Decline to answer')
    sure.press(enter)
    expect(await sure.end()).toMatchObject({ code: 0, stdout: 'kept\n' })
    const link = open('call', listening.url, 'link', ...OLDER)
    await link.see('host: example.com')
    await link.see('I agree to open it')
    link.press(down, enter)
    expect(await link.end()).toMatchObject({ code: 0, stdout: 'visited\n' })
  })

  it('C5 is cancelled by Ctrl-C, and so are the questions that follow', async () => {
    const terminal = open('call', v1.url, 'parallel')
    await terminal.see('What do you want to do?')
    terminal.press(ctrlC)
    const { code, stdout, screen } = await terminal.end()
    expect(stdout).toBe('undefined and undefined\n')
    expect(screen).not.toContain('round 2')
    expect(code).toBe(130)
  })

  it('C5 can be sampling, answered by the user, or a request for roots', async () => {
    const terminal = open('call', v1.url, 'ask_model', '--sampling', '--root', 'src')
    await terminal.see('user: An idea?')
    await terminal.see('The completion')
    terminal.press('tea', enter)
    const { code, stdout } = await terminal.end()
    expect(JSON.parse(stdout)).toMatchObject({
      idea: { content: { text: 'tea' } },
      where: { roots: [{ name: 'src' }] },
    })
    expect(code).toBe(0)
  })
})

describe('a server that stops waiting', () => {
  const question = {
    id: 'q',
    method: 'elicitation/create',
    params: {
      message: 'Who?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
    },
  }

  async function serveScript(after: (stream: Stream) => void) {
    let asked: Stream | undefined
    const { fetch } = scriptSession({
      capabilities: { tools: {} },
      onCall(stream) {
        const { id, method } = stream.message
        const tools = [{ name: 'ask', inputSchema: { type: 'object' } }]
        stream.send(method === 'tools/list' ? { id, result: { tools } } : question)
        if (method === 'tools/list') stream.end()
        else asked = stream
      },
    })
    const port = await new Promise<number>((done) => {
      const http = serve({ fetch, port: 0, hostname: '127.0.0.1' }, (info) => done(info.port))
      closing.push(() => void http.close())
    })
    const terminal = open('call', `http://127.0.0.1:${port}/mcp`, 'ask')
    await terminal.see('What do you want to do?')
    if (asked === undefined) throw new Error('The server was not called')
    after(asked)
    return terminal.end()
  }

  it('withdraws its question: the prompt closes, and the call continues to its result', async () => {
    const ended = await serveScript((stream) => {
      stream.send({ method: 'notifications/cancelled', params: { requestId: 'q' } })
      stream.result('never mind')
    })
    expect(ended).toMatchObject({ code: 0, stdout: 'never mind\n' })
  })

  it('exits: the command ends at once with an error', async () => {
    const ended = await serveScript((stream) => stream.end())
    expect(ended).toMatchObject({ code: EXITS.unreachable.code, stdout: '' })
  })
})

describe('a pushed question with --answers', () => {
  const call = (answers: unknown, ...words: string[]): Promise<Ran> =>
    home.run(['call', ...words, '--answers', '-'], { input: JSON.stringify(answers) })

  it('is answered by its message, or by its number', async () => {
    const byMessage = { 'Right?': { value: 'east' }, 'Left?': { value: 'west' } }
    expect(await call(byMessage, v1.url, 'parallel')).toMatchObject({ code: 0, stdout: 'west and east\n' })
    const byNumber = { 'question-1': { name: 'Ada' } }
    expect(await call(byNumber, v1.url, 'greet')).toMatchObject({ code: 0, stdout: 'Hello, Ada!\n' })
    const no = { 'Who are you?': 'decline' }
    expect(await call(no, v1.url, 'greet')).toMatchObject({ code: 0, stdout: 'nobody (decline)\n' })
  })

  it('is answered in prompts and resources too', async () => {
    const input = (answers: unknown) => ({ input: JSON.stringify(answers) })
    const brief = ['prompt', v1.url, 'brief', 'topic=tea', '--answers', '-']
    expect(await home.run(brief, input({ 'Which tone?': { tone: 'dry' } }))).toMatchObject({
      code: 0,
      stdout: 'user: tea, dry\n',
    })
    const report = ['read', v1.url, 'test://report', '--answers', '-']
    expect(await home.run(report, input({ 'Which period?': { period: 'May' } }))).toMatchObject({
      code: 0,
      stdout: 'report for May\n',
    })
  })

  it('is cancelled if it has no answer, and the command exits with 4', async () => {
    const ran = await call({ who: { name: 'Ada' } }, v1.url, 'greet')
    expect(ran).toMatchObject({ code: EXITS.answers.code, stdout: 'nobody (cancel)\n' })
    expect(ran.stderr).toContain('No answer for "Who are you?"')
    expect(ran.stderr).toContain('Unused answers: "who"')
  })

  it('ends the call if its answer is invalid, and the server is told', async () => {
    const ran = await call({ 'Who are you?': { nam: 'Ada' } }, v1.url, 'greet')
    expect(ran).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    expect(ran.stderr).toContain('the form has no field nam')
    await expect.poll(() => v1.seen).toContain('POST notifications/cancelled')
  })
})

describe('a pushed question with nobody to answer', () => {
  it.each([
    ['without a terminal', []],
    ['with --detach', ['--detach']],
  ])('C10 is cancelled %s, and the command says why the call cannot be stored', async (_way, words) => {
    const ran = await home.run(['call', v1.url, 'greet', ...words])
    expect(ran).toMatchObject({ code: EXITS.answers.code, stdout: 'nobody (cancel)\n' })
    expect(ran.stderr).toContain(
      'In 2025-11-25 the server waits for answers, so the call cannot be kept for later',
    )
    expect(ran.stderr).toContain('the question was cancelled')
    expect((await home.run(['pending'])).stdout).toBe('')
  })

  it('C10 does not hang over stdio, and nothing is approved', async () => {
    const { code, stdout } = await home.run(['call', 'greet', '--json', ...process1])
    expect(JSON.parse(stdout)).toMatchObject({ status: 'complete', unanswered: ['Who are you?'] })
    expect(code).toBe(EXITS.answers.code)
    const kept = await home.run(['call', listening.url, 'delete', ...OLDER])
    expect(kept).toMatchObject({ code: EXITS.answers.code, stdout: 'kept\n' })
  })

  it('ends the call if it is sampling, which cannot be cancelled', async () => {
    const ran = await home.run(['call', v1.url, 'ask_model', '--sampling'])
    expect(ran).toMatchObject({ code: EXITS.answers.code, stdout: '' })
    expect(ran.stderr).toContain('No answer for "question-1" (sampling/createMessage)')
  })
})

describe('a server whose questions come in turns', () => {
  it('F5 has calls that can be stored, and answers are matched by message or number', async () => {
    const turns = createServer({ name: 'turns', version: '1', log: 'off', keys: generateKey() })
    const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } as const
    turns.tool('ask', {}, async (_args, ctx) => {
      const { name } = (await ctx.ask('who', { message: 'Who?', schema })) as { name: string }
      return `hello ${name}`
    })
    const { url } = await turns.listen({ port: 0, signals: false })
    const { value, code } = await home.json(['call', url, 'ask', ...OLDER])
    expect([code, value.protocolVersion]).toEqual([EXITS.pending.code, '2025-11-25'])
    expect(await home.run(['answer', String(value.id), 'name=Ada'])).toMatchObject({
      code: 0,
      stdout: 'hello Ada\n',
    })
    const input = JSON.stringify({ 'Who?': { name: 'Bob' } })
    const ran = await home.run(['call', url, 'ask', ...OLDER, '--answers', '-'], { input })
    expect(ran).toMatchObject({ code: 0, stdout: 'hello Bob\n' })
    const numbered = JSON.stringify({ 'question-1': { name: 'Cy' } })
    expect(
      await home.run(['call', url, 'ask', ...OLDER, '--answers', '-'], { input: numbered }),
    ).toMatchObject({ code: 0, stdout: 'hello Cy\n' })
    const unknown = await home.run(['call', url, 'ask', ...OLDER, '--answers', '-'], { input: '{}' })
    expect(unknown).toMatchObject({
      code: EXITS.answers.code,
      stderr: expect.stringContaining('No answer for "Who?"'),
    })
    await turns.close()
  })
})

describe('--revision', () => {
  it('sets the revision of a call, and refuses an unknown one', async () => {
    const { value } = await home.json(['tools', listening.url, ...OLDER])
    expect(value).toMatchObject({ server: { protocolVersion: '2025-11-25' } })
    const ran = await home.run(['tools', listening.url, '--revision', '2031-01-01'])
    expect(ran).toMatchObject({ code: EXITS.usage.code, stdout: '' })
    expect(ran.stderr).toContain('DRAFT-2026-v1')
  })

  it('C11 is kept for a pending call when it is resumed', async () => {
    const draft = ['--revision', 'DRAFT-2026-v1']
    const { value, code } = await home.json(['call', listening.url, 'delete', ...draft])
    expect([code, value.protocolVersion]).toEqual([EXITS.pending.code, 'DRAFT-2026-v1'])
    const ran = await home.run(['answer', String(value.id), 'sure.confirm=yes'])
    expect(ran).toMatchObject({ code: 0, stdout: 'gone\n' })
  })
})
