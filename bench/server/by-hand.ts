/**
 * What somebody writes by hand for this one tool: node:http, and every check of a request that Rondo does with the tool's own
 * types instead of a runtime. Host and origin, HTTP method, media type, length, UTF-8, the shape of JSON-RPC, the version, the
 * headers that mirror the body, the client's capability, arguments and answers by compiled JSON Schema, and a state that is
 * encrypted, expires, and opens for the arguments of its call alone.
 *
 * It has no other method, question or tool, no replay, no guard against duplicate keys or deep JSON, no key rotation, no
 * limits for callers, no log and no drain.
 */

import { isUtf8 } from 'node:buffer'
import { createCipheriv, createDecipheriv, createSecretKey, hkdfSync, randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { z } from 'zod'
import { Answer, Input, QUESTION_KEY, questionFor, resultFor, SECRET, toolNames } from '../work.ts'
import { listenOnLoopback } from './listen-on-loopback.ts'
import type { StartServer } from './start.ts'

const MAX_BODY_BYTES = 1_048_576
const STATE_MS = 600_000
const VERSION = '2026-07-28'
const VERSION_KEY = 'io.modelcontextprotocol/protocolVersion'
const CAPABILITIES_KEY = 'io.modelcontextprotocol/clientCapabilities'

type Json = Readonly<Record<string, unknown>>
type Arguments = z.infer<typeof Input>

/** An error that the client reads. */
class Refusal extends Error {
  readonly status: number
  readonly code: number

  constructor(status: number, code: number, message: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

const isRecord = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

// Admission: what is checked before the body is read.

const LOOPBACK = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/i
const LOCAL_ORIGIN = /^https?:\/\/(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/i
const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset="?utf-?8"?[ \t]*)?;?$/i

function admit({ method, headers, rawHeaders }: IncomingMessage): void {
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2) if (rawHeaders[i]?.toLowerCase() === 'host') hosts += 1
  if (hosts > 1) throw new Refusal(400, -32000, 'The request has more than one Host header')
  if (!LOOPBACK.test(headers.host ?? '')) throw new Refusal(403, -32000, 'This Host is not allowed')
  if (headers.origin !== undefined && !LOCAL_ORIGIN.test(headers.origin))
    throw new Refusal(403, -32000, 'This Origin is not allowed')
  if (method !== 'POST') throw new Refusal(405, -32000, 'Use POST')
  if (!JSON_TYPE.test(headers['content-type'] ?? ''))
    throw new Refusal(415, -32000, 'Content-Type must be application/json')
  if (Number(headers['content-length'] ?? 0) > MAX_BODY_BYTES) throw tooLarge()
}

const tooLarge = (): Refusal => new Refusal(413, -32000, 'The request body is too large')

// Decoding: the message, its version, and the headers that must agree with it.

interface Decoded {
  readonly name: string
  readonly args: unknown
  readonly capabilities: Json
  readonly inputResponses?: unknown
  readonly requestState?: unknown
}

function parse(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new Refusal(400, -32700, 'The body is not UTF-8')
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch {
    throw new Refusal(400, -32700, 'The body is not valid JSON')
  }
}

function decode(message: unknown, headers: IncomingMessage['headers']): Decoded {
  if (!isRecord(message) || message.jsonrpc !== '2.0' || typeof message.method !== 'string')
    throw new Refusal(400, -32600, 'The message is not a JSON-RPC request')
  if (idOf(message) === null) throw new Refusal(400, -32600, 'id must be a string or an integer')
  const { method, params } = message
  if (!isRecord(params) || !isRecord(params._meta)) throw new Refusal(400, -32602, 'params._meta is missing')
  const { [VERSION_KEY]: claim, [CAPABILITIES_KEY]: capabilities } = params._meta
  if (typeof claim !== 'string') throw new Refusal(400, -32602, `params._meta lacks "${VERSION_KEY}"`)
  const version = headers['mcp-protocol-version']
  if (version !== claim) throw new Refusal(400, -32020, 'MCP-Protocol-Version does not match the body')
  if (claim !== VERSION) throw new Refusal(400, -32022, 'Unsupported protocol version')
  if (!isRecord(capabilities)) throw new Refusal(400, -32602, `params._meta lacks "${CAPABILITIES_KEY}"`)
  if (headers['mcp-method'] !== method) throw new Refusal(400, -32020, 'Mcp-Method does not match the method')
  if (method !== 'tools/call') throw new Refusal(404, -32601, 'Method not found')
  const { name, arguments: args = {}, inputResponses, requestState } = params
  if (typeof name !== 'string') throw new Refusal(200, -32602, 'params.name must be a string')
  if (headers['mcp-name'] !== name) throw new Refusal(400, -32020, 'Mcp-Name does not match the body')
  return { name, args, capabilities, inputResponses, requestState }
}

function idOf(message: unknown): string | number | null {
  const id = isRecord(message) ? message.id : undefined
  return typeof id === 'string' || Number.isSafeInteger(id) ? (id as string | number) : null
}

// The state: nonce 12 · ciphertext · tag 16, bound to the tool and its arguments by the additional data.

const key = createSecretKey(
  Buffer.from(hkdfSync('sha256', Buffer.from(SECRET, 'base64'), '', 'state of the tool', 32)),
)
const [NONCE_BYTES, TAG_BYTES] = [12, 16]

const bindingOf = (name: string, { id, resolution }: Arguments): Buffer =>
  Buffer.from(JSON.stringify([name, id, resolution ?? null]))

function sealState(binding: Buffer): string {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(binding)
  const text = cipher.update(JSON.stringify({ expires: Date.now() + STATE_MS, asked: QUESTION_KEY }))
  cipher.final()
  return Buffer.concat([nonce, text, cipher.getAuthTag()]).toString('base64url')
}

const badState = (): Refusal => new Refusal(200, -32602, 'Invalid or expired requestState')

function checkState(state: unknown, binding: Buffer): void {
  const bytes = Buffer.from(typeof state === 'string' ? state : '', 'base64url')
  if (bytes.length < NONCE_BYTES + TAG_BYTES || bytes.toString('base64url') !== state) throw badState()
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, NONCE_BYTES), {
    authTagLength: TAG_BYTES,
  })
  decipher.setAAD(binding).setAuthTag(bytes.subarray(-TAG_BYTES))
  const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES))
  try {
    decipher.final()
  } catch {
    throw badState()
  }
  const { expires, asked } = JSON.parse(text.toString('utf8'))
  if (asked !== QUESTION_KEY || Date.now() >= expires) throw badState()
}

// The tool.

const ajv = new Ajv2020()
const jsonSchema = (schema: z.ZodType): object => z.toJSONSchema(schema, { io: 'input' })
const isAnswer = ajv.compile<z.infer<typeof Answer>>(jsonSchema(Answer))
const requestedSchema = {
  type: 'object',
  properties: { resolution: { type: 'string', enum: ['Fixed', 'Duplicate', 'By Design'] } },
  required: ['resolution'],
}
const _meta = { 'io.modelcontextprotocol/serverInfo': { name: 'bench', version: '1.0.0' } }

const complete = (text: string, isError?: true): object => ({
  resultType: 'complete',
  _meta,
  content: [{ type: 'text', text }],
  isError,
})

function ask(binding: Buffer, id: number, { elicitation }: Json): object {
  if (!isRecord(elicitation)) throw new Refusal(400, -32021, 'The client lacks a required capability')
  const params = { mode: 'form', message: questionFor(id), requestedSchema }
  return {
    resultType: 'input_required',
    _meta,
    inputRequests: { [QUESTION_KEY]: { method: 'elicitation/create', params } },
    requestState: sealState(binding),
  }
}

function call(tools: ReadonlyMap<string, ValidateFunction<Arguments>>, decoded: Decoded): object {
  const { name, args, capabilities, inputResponses, requestState } = decoded
  const isInput = tools.get(name)
  if (isInput === undefined) throw new Refusal(200, -32602, `Unknown tool ${name}`)
  if (!isInput(args)) return complete(`Invalid arguments: ${ajv.errorsText(isInput.errors)}`, true)
  if (args.resolution !== undefined) return complete(resultFor(args.id, args.resolution))
  const binding = bindingOf(name, args)
  if (requestState === undefined) return ask(binding, args.id, capabilities)
  checkState(requestState, binding)
  const response = isRecord(inputResponses) ? inputResponses[QUESTION_KEY] : undefined
  if (!isRecord(response)) return ask(binding, args.id, capabilities)
  if (response.action !== 'accept') return complete('The question was not answered', true)
  if (!isAnswer(response.content))
    throw new Refusal(200, -32602, `Invalid answer: ${ajv.errorsText(isAnswer.errors)}`)
  return complete(resultFor(args.id, response.content.resolution))
}

function send(res: ServerResponse, status: number, message: object): void {
  const body = JSON.stringify({ jsonrpc: '2.0', ...message })
  res.writeHead(status, ['Content-Type', 'application/json', 'Content-Length', Buffer.byteLength(body)])
  res.end(body)
}

function refuse(res: ServerResponse, id: string | number | null, error: unknown): void {
  const { status, code, message } =
    error instanceof Refusal ? error : new Refusal(500, -32603, 'Internal error')
  send(res, status, { id, error: { code, message } })
}

export const start: StartServer = (count) => {
  const tools = new Map(
    toolNames(count).map((name) => [name, ajv.compile<Arguments>(jsonSchema(Input))] as const),
  )
  const server = createServer((req, res) => {
    try {
      admit(req)
    } catch (error) {
      res.shouldKeepAlive = false
      return refuse(res, null, error)
    }
    const chunks: Buffer[] = []
    let size = 0
    req.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size <= MAX_BODY_BYTES) chunks.push(chunk)
      else req.destroy()
    })
    req.on('error', () => {})
    req.on('end', () => {
      let message: unknown
      try {
        message = parse(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks))
        send(res, 200, { id: idOf(message), result: call(tools, decode(message, req.headers)) })
      } catch (error) {
        refuse(res, idOf(message), error)
      }
    })
  })
  return listenOnLoopback(server)
}
