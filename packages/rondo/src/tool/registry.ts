/**
 * Everything a server offers, compiled when it is declared: a call finds its target, a listing its rows.
 */

import { misuse } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { callable, defineOptions, flag, number, type OptionsOf, type Range, unchecked } from '../options.ts'
import type { CompleteRef, FlowMethod, Listing, Principal } from '../protocol/call.ts'
import { type ParamHeader, scanParamHeaders } from '../protocol/common/headers.ts'
import type { Completion, JsonSchema } from '../protocol/wire.ts'
import { type ConcurrencyOptions, concurrencyOf, keyFunction } from './concurrency.ts'
import type { Context, Schema } from './context.ts'
import type {
  CachePolicy,
  Described,
  PromptDefinition,
  PromptHandler,
  ResourceDefinition,
  ResourceHandler,
  Scopes,
  TemplateDefinition,
  TemplateHandler,
  ToolDefinition,
  ToolHandler,
} from './definition.ts'
import { assertForwarded, type Forwarded, forwardTarget } from './forward.ts'
import { TEXT_BOUNDS, type TextBounds } from './schema/judge.ts'
import { compileSchema, droppingUnknown } from './schema/schema.ts'
import type { Compiled } from './schema/standard.ts'
import { warnOfPatterns } from './schema/subschemas.ts'
import {
  assertAccept,
  assertScopes,
  assertTaskScopes,
  promptTarget,
  type RequiredScopes,
  resourceTarget,
  scopesOf,
  type Target,
  toolTarget,
} from './target.ts'
import { parseTemplate } from './uri-template.ts'

/** One row of a listing, as it goes onto the wire. */
type Row = Readonly<Record<string, unknown>>

interface Template {
  readonly row?: Row
  readonly suggest?: Forwarded['complete']
  readonly definition: Pick<TemplateDefinition, 'complete'> & { readonly scopes?: unknown }
  match(uri: string): Target | undefined
}

/** Suggests values for an argument, knowing the other arguments and the caller. */
export type Suggest = (
  value: string,
  known: Readonly<Record<string, string>>,
  principal: Principal | undefined,
) => readonly string[] | Completion | Promise<readonly string[] | Completion>

/** The methods that declare what a server offers. */
export interface Declarations {
  /** Declares a [tool](docs/guide/01-first-tool.md). Its handler may ask in the middle. */
  tool<I extends Schema | undefined = undefined, O extends Schema | undefined = undefined>(
    name: string,
    definition: ToolDefinition<I, O>,
    handler: ToolHandler<I, O>,
  ): void
  /** Declares a prompt. */
  prompt<I extends Schema | undefined = undefined>(
    name: string,
    definition: PromptDefinition<I>,
    handler: PromptHandler<I>,
  ): void
  /** Declares a resource with a fixed URI. */
  resource(uri: string, definition: ResourceDefinition, handler: ResourceHandler): void
  /** Declares resources by a URI template (RFC 6570). */
  template<const T extends string>(
    uriTemplate: T,
    definition: TemplateDefinition<T>,
    handler: TemplateHandler<T>,
  ): void
  /**
   * Removes a declaration from `tools`, `prompts`, `resources` or `templates`; returns false if there was none.
   */
  remove(listing: Listing, name: string): boolean
}

export interface Registry extends Declarations {
  /** Declares what another server offers. */
  forward(listing: Listing, name: string, forwarded: Forwarded): void
  find(method: FlowMethod, target: string): Target | undefined
  rows(listing: Listing): readonly Row[]
  completer(ref: CompleteRef, argument: string): Suggest | undefined
  paramHeaders(tool: string): readonly ParamHeader[]
  /** Returns the scopes that suggestions for a prompt or a template need, with the arguments that are known so far. */
  completionScopes(
    ref: CompleteRef,
    known: Readonly<Record<string, unknown>>,
  ): Promise<RequiredScopes | undefined>
  /** True once something was declared that asks for scopes. */
  readonly scoped: boolean
}

/** The lifetime of a task: a leap year at most. */
export const TTL_RANGE: Range = { min: 1, max: 366 * 86_400_000, whole: true }
/** The poll interval of a task: it must fit into a timer. */
export const POLL_RANGE: Range = { min: 1, max: 2 ** 31 - 1, whole: true }

const DESCRIBED = {
  title: unchecked(),
  description: unchecked(),
  icons: unchecked(),
  _meta: unchecked(),
  version: unchecked(),
} satisfies OptionsOf<Described>
const TOOL = defineOptions('tool', {
  ...DESCRIBED,
  input: unchecked(),
  output: unchecked(),
  annotations: unchecked(),
  scopes: unchecked(),
  dropUnknownArguments: flag(),
  once: flag(false),
  task: unchecked(),
  taskTtlMs: number(undefined, TTL_RANGE),
  taskPollMs: number(undefined, POLL_RANGE),
  concurrency: unchecked(),
  dedupe: callable(),
  accept: unchecked(),
} satisfies OptionsOf<ToolDefinition>)
const PROMPT = defineOptions('prompt', {
  ...DESCRIBED,
  input: unchecked(),
  scopes: unchecked(),
  complete: unchecked(),
} satisfies OptionsOf<PromptDefinition>)
const READABLE = {
  ...DESCRIBED,
  name: unchecked<string>(),
  mimeType: unchecked<string | undefined>(),
  annotations: unchecked<ResourceDefinition['annotations']>(),
  cache: unchecked<ResourceDefinition['cache']>(),
}
const RESOURCE = defineOptions('resource', {
  ...READABLE,
  size: unchecked(),
  scopes: unchecked(),
} satisfies OptionsOf<ResourceDefinition>)
const TEMPLATE = defineOptions('template', {
  ...READABLE,
  scopes: unchecked(),
  complete: unchecked(),
} satisfies OptionsOf<TemplateDefinition>)

const MODES: readonly string[] = ['late', 'auto', 'always', 'never']
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/
const DEFAULT_CACHE: CachePolicy = { ttlMs: 0, scope: 'private' }
const NO_HEADERS: readonly ParamHeader[] = []

/** A tool that the server itself declares. Its name cannot be used or removed by an author. */
export interface BuiltInTool {
  readonly name: string
  readonly definition: ToolDefinition<JsonSchema>
  handler(args: Readonly<Record<string, unknown>>, ctx: Context): unknown
}

interface RegistryOptions {
  /** Whether the server has a store. */
  readonly store?: boolean
  /** Whether the store has permits. */
  readonly permits?: boolean
  readonly bounds?: TextBounds
  readonly dropUnknownArguments?: boolean
  /** The tools through which clients that cannot follow tasks reach them. */
  readonly taskTools?: readonly BuiltInTool[]
  /** In development mode: receives warnings of patterns that may take exponential time. */
  readonly warn?: (message: string) => void
}

export function createRegistry({
  store = false,
  permits = false,
  bounds = TEXT_BOUNDS,
  dropUnknownArguments = false,
  taskTools,
  warn,
}: RegistryOptions = {}): Registry {
  const compileInput = (
    of: string,
    schema: Schema | undefined,
    drops = dropUnknownArguments,
  ): Compiled | undefined => {
    if (!schema) return undefined
    const input = compileSchema(schema, 'input', bounds, of)
    return drops ? droppingUnknown(input) : input
  }
  const tools = new Map<string, { row?: Row; target: Target; headers: readonly ParamHeader[] }>()
  const prompts = new Map<
    string,
    { row?: Row; target: Target; definition: PromptDefinition; suggest?: Forwarded['complete'] }
  >()
  const resources = new Map<string, { row?: Row; target: Target }>()
  const templates = new Map<string, Template>()
  const listings = { tools, prompts, resources, templates }
  let scoped = false
  const noteScopes = ({ scopes }: { readonly scopes?: unknown }): void => {
    scoped ||= scopes !== undefined
  }

  const reserved = new Set(taskTools?.map(({ name }) => name))

  const declareTool = (
    name: string,
    definition: ToolDefinition<Schema | undefined, Schema | undefined>,
    handler: unknown,
    live?: boolean,
  ): void => {
    if (!TOOL_NAME.test(name)) {
      throw misuse(
        `A tool's name must have 1 to 128 letters, digits, "_", "." or "-"; got ${JSON.stringify(name)}.`,
      )
    }
    assertNew('tool', name, tools)
    TOOL.assert(definition ?? null, `Tool "${name}"`)
    assertHandler(`Tool "${name}"`, handler)
    if (!store) assertStore(name, definition)
    else if (!permits && (definition.concurrency || definition.dedupe))
      throw misuse(
        `Tool "${name}" has ${definition.concurrency ? 'concurrency' : 'dedupe'}, which needs a store with permits, such as SQLite or PostgreSQL; this store has none.`,
      )
    const { taskTtlMs, taskPollMs, task: mode = 'late' } = definition
    if (!MODES.includes(mode))
      throw misuse(`task of tool "${name}" must be 'auto', 'always' or 'never'; got ${JSON.stringify(mode)}.`)
    assertAccept(`tool "${name}"`, definition.accept)
    const input = compileInput(`tool "${name}"`, definition.input, definition.dropUnknownArguments)
    if (warn && input) warnOfPatterns(`The input schema of tool "${name}"`, input.json, warn)
    const output = definition.output
      ? compileSchema(definition.output, 'output', bounds, `tool "${name}"`)
      : undefined
    const target = toolTarget(name, handler as never, {
      version: definition.version,
      input,
      output,
      once: definition.once,
      live,
      scopes: definition.scopes as Scopes<never> | undefined,
      task: { mode, ttlMs: taskTtlMs, pollMs: taskPollMs },
      accept: definition.accept,
      concurrency: concurrencyOf(
        `tool "${name}"`,
        definition.concurrency as ConcurrencyOptions | undefined,
        input,
      ),
      dedupe: definition.dedupe && keyFunction(`dedupe of tool "${name}"`, definition.dedupe as never, input),
    })
    if (store && mode !== 'never' && Array.isArray(definition.scopes))
      assertTaskScopes(`tool "${name}"`, definition.scopes)
    const mayBeHandle = taskTools !== undefined && mode !== 'never'
    const outputSchema = mayBeHandle && output ? orTaskHandle(output.json) : output?.json
    const schemas = { inputSchema: input?.json ?? { type: 'object' }, outputSchema }
    const wire = row({ name }, definition, { ...schemas, annotations: definition.annotations })
    tools.set(name, { row: wire, target, headers: headersOf(name, input?.json) })
    // The scopes of built-in tools are those of tasks, which only tools with scopes begin.
    if (!live) noteScopes(definition)
  }

  for (const { name, definition, handler } of taskTools ?? [])
    declareTool(name, { ...(definition as ToolDefinition<Schema>), task: 'never' }, handler, true)

  return {
    tool(name, definition, handler) {
      if (reserved.has(name)) {
        throw misuse(
          `The tool "${name}" belongs to tasks: { tools: true }. Give your tool another name, or turn that option off.`,
        )
      }
      declareTool(name, definition, handler)
    },
    prompt(name, definition, handler) {
      if (name === '') throw misuse("A prompt's name must not be empty.")
      assertNew('prompt', name, prompts)
      PROMPT.assert(definition ?? null, `Prompt "${name}"`)
      assertHandler(`Prompt "${name}"`, handler)
      const input = compileInput(`prompt "${name}"`, definition.input)
      const { version, description, scopes } = definition
      const target = promptTarget(name, handler as never, { version, input, description, scopes })
      const wire = row({ name }, definition as PromptDefinition, { arguments: promptArguments(input) })
      prompts.set(name, { row: wire, target, definition: definition as PromptDefinition })
      noteScopes(definition)
    },
    resource(uri, definition, handler) {
      if (!URL.canParse(uri))
        throw misuse(`A resource needs a full URI, such as "notes://today"; got "${uri}".`)
      assertNew('resource', uri, resources)
      RESOURCE.assert(definition ?? null, `Resource "${uri}"`)
      assertHandler(`Resource "${uri}"`, handler)
      const { name, mimeType, size, annotations, version, cache = DEFAULT_CACHE, scopes } = definition
      const target = resourceTarget(uri, handler as never, uri, { version, mimeType, cache, scopes })
      resources.set(uri, { row: row({ uri, name }, definition, { mimeType, size, annotations }), target })
      noteScopes(definition)
    },
    template(uriTemplate, definition, handler) {
      assertNew('resource template', uriTemplate, templates)
      TEMPLATE.assert(definition ?? null, `Template "${uriTemplate}"`)
      assertHandler(`Template "${uriTemplate}"`, handler)
      const template = parseTemplate(uriTemplate)
      const { name, mimeType, annotations, version, cache = DEFAULT_CACHE, scopes } = definition
      if (Array.isArray(scopes)) assertScopes(`The scopes of the template "${uriTemplate}"`, scopes)
      templates.set(uriTemplate, {
        row: row({ uriTemplate, name }, definition, { mimeType, annotations }),
        definition,
        match(uri) {
          const params = template.match(uri)
          const terms = { label: uriTemplate, version, mimeType, cache, scopes }
          return params && resourceTarget(uri, handler as never, params, terms)
        },
      })
      noteScopes(definition)
    },
    forward(listing, name, forwarded) {
      assertNew(listing === 'templates' ? 'resource template' : listing.slice(0, -1), name, listings[listing])
      assertForwarded(listing, name, forwarded)
      const { row: wire, complete: suggest, matches } = forwarded
      if (listing === 'templates') {
        const template = matches ? undefined : parseTemplate(name)
        const serves = matches ?? ((uri: string) => template?.match(uri) !== undefined)
        const match = (uri: string) => (serves(uri) ? forwardTarget(listing, uri, forwarded) : undefined)
        return void templates.set(name, { row: wire, definition: {}, suggest, match })
      }
      const target = forwardTarget(listing, name, forwarded)
      if (listing === 'prompts') prompts.set(name, { row: wire, target, definition: {}, suggest })
      else if (listing === 'resources') resources.set(name, { row: wire, target })
      else tools.set(name, { row: wire, target, headers: mirroredOf(wire?.inputSchema) })
    },
    remove: (listing, name) => !(listing === 'tools' && reserved.has(name)) && listings[listing].delete(name),
    find(method, name) {
      if (method === 'tools/call') return tools.get(name)?.target
      if (method === 'prompts/get') return prompts.get(name)?.target
      return resources.get(name)?.target ?? findTemplate(templates, name)
    },
    rows(listing) {
      const entries: Iterable<{ readonly row?: Row }> = listings[listing].values()
      return [...entries].flatMap(({ row: wire }) => (wire === undefined ? [] : [wire]))
    },
    completer(ref, argument) {
      const found = ref.kind === 'prompt' ? prompts.get(ref.name) : templates.get(ref.uri)
      const suggest = found?.suggest
      if (suggest) return (value, known, principal) => suggest({ name: argument, value }, known, principal)
      const complete = found?.definition.complete
      return complete && Object.hasOwn(complete, argument) ? complete[argument] : undefined
    },
    paramHeaders: (tool) => tools.get(tool)?.headers ?? NO_HEADERS,
    async completionScopes(ref, known) {
      if (ref.kind === 'template') return uncheckedScopes(templates.get(ref.uri)?.definition, known)
      const prompt = prompts.get(ref.name)
      const required = await prompt?.target.scopes?.(known)
      if (required?.kind !== 'refused') return required
      return (await uncheckedScopes(prompt?.definition, known)) ?? required
    },
    get scoped() {
      return scoped
    },
  }
}

/** The scopes for arguments of which some are missing, so that they do not fit a schema. */
async function uncheckedScopes(
  definition: { readonly scopes?: unknown } | undefined,
  known: Readonly<Record<string, unknown>>,
): Promise<RequiredScopes | undefined> {
  return scopesOf(definition?.scopes as Scopes<never> | undefined, undefined)?.(known)
}

function assertNew(kind: string, name: string, taken: ReadonlyMap<string, unknown>): void {
  if (taken.has(name))
    throw misuse(`The ${kind} "${name}" exists already. Names must be unique within a server.`)
}

function assertHandler(of: string, handler: unknown): void {
  if (typeof handler !== 'function') throw misuse(`${of} needs a handler: a function, after the options.`)
}

function headersOf(name: string, json: JsonSchema | undefined): readonly ParamHeader[] {
  const scan = json ? scanParamHeaders(json) : undefined
  if (scan?.kind === 'bad') throw misuse(`The input schema of tool "${name}": ${scan.problem}.`)
  return scan?.headers ?? NO_HEADERS
}

/** The headers that a forwarded tool's schema asks for; none if its annotations are not valid. */
function mirroredOf(schema: unknown): readonly ParamHeader[] {
  const scan = isRecord(schema) ? scanParamHeaders(schema) : undefined
  return scan?.kind === 'good' ? scan.headers : NO_HEADERS
}

/** Refuses a tool that needs a store the server does not have: when it is declared, not when it is called. */
function assertStore(
  name: string,
  { task, once, concurrency, dedupe }: ToolDefinition<Schema | undefined, Schema | undefined>,
): void {
  if (task !== 'always' && !once && !concurrency && !dedupe) return
  const option = once ? 'once: true' : concurrency ? 'concurrency' : dedupe ? 'dedupe' : "task: 'always'"
  throw misuse(
    `Tool "${name}" has ${option}, which needs a store: createServer({ store: createSqliteStore({ file }) }) from rondo/sqlite.`,
  )
}

/** The wire row of a definition: what a client may see of it. */
function row(first: Row, { title, description, icons, _meta }: Described, rest: Row = {}): Row {
  return { ...first, title, description, ...rest, icons, _meta }
}

function promptArguments(input: Compiled | undefined): Row[] | undefined {
  if (!input) return undefined
  const { properties = {}, required = [] } = input.json as {
    properties?: Record<string, { title?: string; description?: string }>
    required?: readonly string[]
  }
  return Object.entries(properties).map(([name, { title, description }]) => ({
    name,
    title,
    description,
    required: required.includes(name),
  }))
}

function findTemplate(templates: ReadonlyMap<string, Template>, uri: string): Target | undefined {
  for (const template of templates.values()) {
    const target = template.match(uri)
    if (target) return target
  }
  return undefined
}

// The value that a call returns in place of its result when it continues as a task and its client reaches tasks through tools
// (`tasks: { tools: true }`). A tool with an output schema must return structured content that fits it, so the schema that
// clients see also allows the handle of a task.

/** The structured content of a call that continues as a task. */
export interface HandedTask {
  readonly task: {
    readonly taskId: string
    readonly status: string
    readonly statusMessage?: string
    /** The next step, for the model. */
    readonly next: string
  }
}

const HANDLE: JsonSchema = {
  type: 'object',
  description: 'The call continues as a task: call task_status for its result.',
  properties: {
    task: {
      type: 'object',
      properties: {
        taskId: { type: 'string' },
        status: { type: 'string' },
        statusMessage: { type: 'string' },
        next: { type: 'string' },
      },
      required: ['taskId', 'status', 'next'],
    },
  },
  required: ['task'],
}

/** Keywords that stay at the root, because references name them from there. */
const AT_ROOT = ['$schema', '$defs', 'definitions'] as const

/**
 * The output schema as clients see it: the tool's own, or the handle of a task. Undefined if the schema refers to itself in a
 * way that would mean something else inside of another one; clients then check nothing.
 */
export function orTaskHandle(output: JsonSchema): JsonSchema | undefined {
  if (!hasPlainReferences(output)) return undefined
  const own: Record<string, unknown> = { ...output }
  const root: Record<string, unknown> = {}
  for (const keyword of AT_ROOT) {
    if (own[keyword] === undefined) continue
    root[keyword] = own[keyword]
    delete own[keyword]
  }
  return { ...root, type: 'object', anyOf: [own, HANDLE] } as JsonSchema
}

/** True if every reference leads to a definition at the root. */
function hasPlainReferences(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return true
  return Object.entries(schema).every(([name, value]) => {
    if (name === '$id' || name === '$anchor' || name === '$dynamicAnchor') return false
    if (name === '$ref' || name === '$dynamicRef')
      return typeof value !== 'string' || /^#\/(\$defs|definitions)\//.test(value)
    return hasPlainReferences(value)
  })
}
