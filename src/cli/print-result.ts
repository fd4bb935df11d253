/** Results as text: what a person wants to read, without the wrapping. `--json` has all of it. */

import type { FlowRequest, FlowResult } from '../client/flow-request.ts'
import { isRecord } from '../lib/is-record.ts'
import type { CallToolResult, GetPromptResult, ReadResourceResult } from '../protocol/result.ts'
import type { Exit } from './exit-code.ts'
import { type Io, print, sayJson, tell } from './io.ts'

export function printResult(io: Io, request: FlowRequest, result: FlowResult): Exit {
  switch (request.method) {
    case 'tools/call':
      return printTool(io, result as CallToolResult)
    case 'prompts/get':
      for (const { role, content } of (result as GetPromptResult).messages) {
        print(io, `${role}: ${sayBlock(content)}`)
      }
      return 'done'
    case 'resources/read':
      for (const contents of (result as ReadResourceResult).contents) print(io, sayContents(contents))
      return 'done'
  }
}

function printTool(io: Io, { content, structuredContent, isError }: CallToolResult): Exit {
  if (isError === true) tell(io, 'The tool answered with an error:')
  for (const block of content) print(io, sayBlock(block))
  if (content.length === 0 && structuredContent !== undefined) {
    print(io, sayJson(structuredContent, io.stdout))
  }
  return isError === true ? 'failed' : 'done'
}

function sayBlock(block: unknown): string {
  if (!isRecord(block)) return JSON.stringify(block)
  const { type, text, mimeType, data, uri, resource } = block
  if (type === 'text') return String(text)
  if (type === 'resource' && isRecord(resource)) return sayContents(resource)
  if (type === 'resource_link') return `[link ${String(uri)}]`
  return `[${String(type)} ${String(mimeType ?? '')}${sizeOf(data)}]`
}

function sayContents(contents: unknown): string {
  if (!isRecord(contents)) return JSON.stringify(contents)
  const { text, blob, mimeType, uri } = contents
  return typeof text === 'string' ? text : `[${String(mimeType ?? 'binary')} ${String(uri)}${sizeOf(blob)}]`
}

function sizeOf(base64: unknown): string {
  return typeof base64 === 'string' ? `, ${Math.floor((base64.length * 3) / 4)} bytes` : ''
}
