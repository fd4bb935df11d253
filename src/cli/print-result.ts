/** Prints a call that is complete, or one that is pending. */

import type { DriveResult } from '../client/flow-options.ts'
import { type FlowRequest, type FlowResult, openQuestions, type PendingCall } from '../client/pending.ts'
import { oneLine } from '../form/clean-text.ts'
import { isRecord } from '../lib/json.ts'
import type { CallToolResult, GetPromptResult, ReadResourceResult } from '../protocol/wire.ts'
import type { Exit } from './command-line.ts'
import { commandOf, sayPending } from './describe.ts'
import { type Io, print, printJson, sayJson, sayValue, tell } from './io.ts'

/** What to report about a completed call besides its result. */
export interface CompletionNotes {
  /** Keys of answers that were not used. */
  readonly unused: readonly string[]
  /** Questions that were cancelled, because the server waited for answers that nobody had. */
  readonly unanswered: readonly string[]
  readonly protocolVersion: string
  readonly interrupted: boolean
}

type Complete = Extract<DriveResult, { status: 'complete' }>

export function printComplete(
  io: Io,
  json: boolean,
  request: FlowRequest,
  { result, rounds }: Complete,
  notes: CompletionNotes,
): Exit {
  const { unused, unanswered } = notes
  if (json) {
    const extra = { ...(unused.length > 0 && { unused }), ...(unanswered.length > 0 && { unanswered }) }
    printJson(io, { status: 'complete', rounds, result, ...extra })
  } else {
    printResult(io, request, result)
    for (const problem of problemsOf(notes)) tell(io, `rondo: ${problem}`)
  }
  if (notes.interrupted) return 'interrupted'
  if (unused.length + unanswered.length > 0) return 'answers'
  return 'isError' in result && result.isError === true ? 'failed' : 'done'
}

function problemsOf({ unused, unanswered, protocolVersion }: CompletionNotes): string[] {
  const list = (words: readonly string[]): string => words.map((word) => `"${oneLine(word)}"`).join(', ')
  return [
    ...(unanswered.length > 0
      ? [
          `No answer for ${list(unanswered)}. In ${protocolVersion} the server waits for answers, so the call cannot be kept ` +
            'for later, and the question was cancelled. Pass --answers, or run the command at a terminal',
        ]
      : []),
    ...(unused.length > 0 ? [`Unused answers: ${list(unused)}`] : []),
  ]
}

export function printPending(io: Io, json: boolean, pending: PendingCall): Exit {
  const idle = pending.task !== undefined && openQuestions(pending).length === 0
  if (json) printJson(io, { status: idle ? 'task' : 'input_required', ...pendingJson(pending) })
  else print(io, `pending ${pending.id}\n${sayPending(pending, commandOf(io))}`)
  return 'pending'
}

/** A pending call as JSON, with the size of the server's state instead of the state itself, which is in the file. */
export function pendingJson({ state, ...pending }: PendingCall): Record<string, unknown> {
  return { ...pending, stateBytes: state === undefined ? 0 : Buffer.byteLength(state) }
}

/** Prints a result as text. */
export function printResult(io: Io, request: FlowRequest, result: FlowResult): Exit {
  switch (request.method) {
    case 'tools/call':
      return printTool(io, result as CallToolResult)
    case 'prompts/get':
      for (const { role, content } of (result as GetPromptResult).messages) {
        print(io, `${sayValue(role)}: ${sayBlock(content)}`)
      }
      return 'done'
    case 'resources/read':
      for (const contents of (result as ReadResourceResult).contents) print(io, sayContents(contents))
      return 'done'
  }
}

function printTool(io: Io, { content, structuredContent, isError }: CallToolResult): Exit {
  if (isError === true) tell(io, 'The tool returned an error:')
  for (const block of content) print(io, sayBlock(block))
  if (content.length === 0 && structuredContent !== undefined) {
    print(io, sayJson(structuredContent, io.stdout))
  }
  return isError === true ? 'failed' : 'done'
}

function sayBlock(block: unknown): string {
  if (!isRecord(block)) return sayValue(block)
  const { type, text, mimeType, data, uri, resource } = block
  if (type === 'text') return sayValue(text)
  if (type === 'resource' && isRecord(resource)) return sayContents(resource)
  if (type === 'resource_link') return `[link ${sayValue(uri)}]`
  return `[${sayValue(type)} ${sayValue(mimeType ?? '')}${sizeOf(data)}]`
}

function sayContents(contents: unknown): string {
  if (!isRecord(contents)) return sayValue(contents)
  const { text, blob, mimeType, uri } = contents
  return typeof text === 'string'
    ? text
    : `[${sayValue(mimeType ?? 'binary')} ${sayValue(uri)}${sizeOf(blob)}]`
}

function sizeOf(base64: unknown): string {
  return typeof base64 === 'string' ? `, ${Math.floor((base64.length * 3) / 4)} bytes` : ''
}
