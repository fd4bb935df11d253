/**
 * The lower bound: node:http, one JSON.parse, one JSON.stringify of a response with the same bytes as Rondo's. It checks
 * nothing, and its state is a string as long as a sealed one.
 */

import { createServer } from 'node:http'
import { QUESTION_KEY, questionFor, resultFor } from '../work.ts'
import { listenOnLoopback } from './listen-on-loopback.ts'
import type { StartServer } from './start.ts'

interface Request {
  readonly id: number
  readonly params: {
    readonly arguments: { readonly id: number; readonly resolution?: string }
    readonly inputResponses?: {
      readonly [QUESTION_KEY]?: { readonly content?: { readonly resolution?: string } }
    }
  }
}

/** As long as a sealed state of one question. */
const STATE = `r1.${'s'.repeat(798)}`

const _meta = { 'io.modelcontextprotocol/serverInfo': { name: 'bench', version: '1.0.0' } }

const requestedSchema = {
  type: 'object',
  properties: { resolution: { type: 'string', enum: ['Fixed', 'Duplicate', 'By Design'] } },
  required: ['resolution'],
}

function answer({ params }: Request): object {
  const { id, resolution = params.inputResponses?.[QUESTION_KEY]?.content?.resolution } = params.arguments
  if (resolution !== undefined) {
    return { resultType: 'complete', _meta, content: [{ type: 'text', text: resultFor(id, resolution) }] }
  }
  const question = {
    method: 'elicitation/create',
    params: { mode: 'form', message: questionFor(id), requestedSchema },
  }
  return {
    resultType: 'input_required',
    _meta,
    inputRequests: { [QUESTION_KEY]: question },
    requestState: STATE,
  }
}

/** It has no tools, so it ignores their number. */
export const start: StartServer = () => {
  const server = createServer((req, res) => {
    const chunks: Buffer[] = []
    req.on('data', (chunk: Buffer) => chunks.push(chunk))
    req.on('end', () => {
      const request = JSON.parse(Buffer.concat(chunks).toString('utf8')) as Request
      const body = JSON.stringify({ jsonrpc: '2.0', id: request.id, result: answer(request) })
      res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) })
      res.end(body)
    })
  })
  return listenOnLoopback(server)
}
