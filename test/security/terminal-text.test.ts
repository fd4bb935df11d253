/**
 * T22: whatever a server sends, the command writes only its own control characters to a terminal, and no line of a server
 * can pass for one of the command.
 */

import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { askQuestion } from '../../packages/cli/src/ask/question.ts'
import { createTerminal } from '../../packages/cli/src/ask/terminal.ts'
import { printComplete, printPending } from '../../packages/cli/src/describe.ts'
import { printFindings } from '../../packages/cli/src/doctor/probe.ts'
import { createStatusLine, formatTable, type Io, print, printJson, tell } from '../../packages/cli/src/io.ts'
import { main } from '../../packages/cli/src/main.ts'
import type { PendingCall } from '../../packages/rondo/src/client/pending.ts'
import type { InputRequest } from '../../packages/rondo/src/protocol/wire.ts'

/** An SGR that the command itself never uses. */
const FOREIGN_SGR = '\u001b[66m'
// biome-ignore lint/suspicious/noControlCharactersInRegex: the check searches for them.
const OWN = /\u001b\[[\d;]*[A-HJKmsu]|\u001b\[\?25[hl]|\r/g
const UNSAFE =
  /[^\P{Cc}\n]|[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]|\p{Cs}/u

/** The problems in what was written to a terminal. */
function faultOf(written: string): string | undefined {
  if (written.includes(FOREIGN_SGR)) return 'colours of a server'
  const found = UNSAFE.exec(written.replace(OWN, ''))
  if (found !== null) return `a control character: ${JSON.stringify(found[0])}`
  const forged = written
    .replace(OWN, '')
    .split('\n')
    .find((line) => line.startsWith('FORGED'))
  return forged === undefined ? undefined : 'a line of a server that looks like one of ours'
}

const evil = fc
  .array(
    fc.constantFrom(
      ...[FOREIGN_SGR, '\u001b]0;title\u0007', '\u009b66m', '\u0000', '\u0008', '\u007f', '\u202e', '\u2066'],
      ...['\u061c', '\u206a', '\ud800', '\u{e0041}', '\u200b', '\t', 'x', 'é', '👩‍💻'],
      ...['\nFORGED', '\rFORGED', '\r\nFORGED', '\u2028FORGED', '\u0085FORGED', '\u000bFORGED'],
    ),
    { minLength: 1, maxLength: 6 },
  )
  .map((parts) => `a${parts.join('')}`)

interface Screen {
  readonly io: Io
  readonly written: () => string
  press(keys: string): void
}

function createScreen(): Screen {
  let text = ''
  const output = (): NodeJS.WriteStream => {
    const stream = new PassThrough()
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
    })
    return Object.assign(stream, { isTTY: true, columns: 100, rows: 40 }) as unknown as NodeJS.WriteStream
  }
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => input })
  const stderr = output()
  const io: Io = {
    ...{ stdin: input as unknown as NodeJS.ReadStream, stdout: output(), stderr },
    ...{ status: createStatusLine(stderr), env: { TERM: 'xterm' }, cwd: '/', now: () => 0 },
    signal: new AbortController().signal,
  }
  return { io, written: () => text, press: (keys) => void input.write(keys) }
}

function questionOf(words: string, type: 'text' | 'choice'): InputRequest {
  const choice = { oneOf: [{ const: words, title: words }, { const: `${words}2` }] }
  const field = type === 'text' ? { type: 'string', default: words } : { type: 'string', enum: [words, 'b'] }
  const requestedSchema = {
    type: 'object',
    properties: {
      [`f${words}`]: { title: words, description: `FORGED ${words}`, ...field },
      ...(type === 'choice' && { other: { type: 'string', ...choice } }),
    },
    required: [`f${words}`, 'other'],
  }
  return { method: 'elicitation/create', params: { mode: 'form', message: words, requestedSchema } } as never
}

function pendingOf(words: string): PendingCall {
  return {
    ...{ id: 'k3fz8a2mqd', round: 1, askedAt: 0, protocolVersion: '2026-07-28' },
    server: { target: words, name: words, version: words },
    request: { method: 'tools/call', name: words, arguments: {} },
    questions: { [words]: questionOf(words, 'choice'), other: questionOf(words, 'text') },
    answers: { [`${words}3`]: { action: 'accept', content: { a: words } } },
    task: { taskId: words },
  } as unknown as PendingCall
}

const WRITERS: Record<string, (screen: Screen, words: string) => unknown> = {
  'a pending call': ({ io }, words) => printPending(io, false, pendingOf(words)),
  'a pending call as JSON': ({ io }, words) => printPending(io, true, pendingOf(words)),
  'a result as JSON': ({ io }, words) => printJson(io, { [words]: words, list: [words] }),
  'a result and what nobody answered': ({ io }, words) =>
    printComplete(
      ...([io, false, { method: 'tools/call', name: words }] as const),
      {
        status: 'complete',
        rounds: 1,
        result: { content: [], structuredContent: { [words]: words } },
      } as never,
      { unused: [words], unanswered: [words], protocolVersion: '2026-07-28', interrupted: false },
    ),
  'a table': ({ io }, words) => print(io, formatTable([[words, words, words]])),
  findings: ({ io }, words) =>
    printFindings(io, [{ id: 'state', verdict: 'fail', detail: words, advice: words }], false),
  'the moving line': ({ io }, words) => {
    io.status.start(words)
    io.status.progress(1, 2, words)
    io.status.stop()
  },
  'an error': ({ io }, words) => main(['state', '--audience', 'a', words, words], io),
  'an unknown command': ({ io }, words) => main([words], io),
}

const runs = { numRuns: process.env.RONDO_LONG === '1' ? 2_000 : 100 }

describe('I8 T22 the output of the command at a terminal', () => {
  it.each(Object.keys(WRITERS))("contains no control character but the command's own: %s", async (name) => {
    await fc.assert(
      fc.asyncProperty(evil, async (words) => {
        const screen = createScreen()
        await WRITERS[name]?.(screen, words)
        expect(screen.written()).not.toBe('')
        expect(faultOf(screen.written())).toBeUndefined()
      }),
      runs,
    )
  })

  it('contains no control character in a result', async () => {
    await fc.assert(
      fc.asyncProperty(evil, async (words) => {
        const screen = createScreen()
        print(screen.io, words)
        tell(screen.io, words)
        expect(UNSAFE.exec(screen.written())).toBeNull()
      }),
      runs,
    )
  })

  it.each(['text', 'choice'] as const)(
    'contains no control character in a prompt with a field of type %s',
    async (type) => {
      await fc.assert(
        fc.asyncProperty(evil, async (words) => {
          const screen = createScreen()
          const asked = askQuestion(
            createTerminal(screen.io),
            { ...pendingOf(words), canKeep: true },
            questionOf(words, type),
            { index: 1, count: 1 },
          ).catch(() => {})
          // Presses Enter through the prompts, then dismisses whatever is on the screen.
          for (const key of ['\r', '\r', '\r', '\r', '\u0003', '\u0003']) {
            screen.press(key)
            await new Promise((next) => setImmediate(next))
          }
          await asked
          expect(screen.written()).toContain('asks, for the tool')
          expect(faultOf(screen.written())).toBeUndefined()
        }),
        { numRuns: runs.numRuns / 4 },
      )
    },
  )

  it('control: control characters are found in text that is not cleaned', () => {
    const weak = createScreen()
    for (const words of [FOREIGN_SGR, '\u009b66m', '\u202e', '\u{e0041}', '\u001b]0;t\u0007', 'a\nFORGED']) {
      const { io, written } = createScreen()
      io.stdout.write(words)
      expect(faultOf(written()), JSON.stringify(words)).toBeDefined()
    }
    tell(weak.io, 'nothing but words')
    expect(faultOf(weak.written())).toBeUndefined()
  })
})
