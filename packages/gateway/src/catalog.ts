/**
 * The offers of the upstreams, kept in step with them.
 *
 * W1 Everything that the configuration allows is listed to every client, whatever its revision, as the upstream describes it.
 * W6 With one upstream names stay as they are; with several each begins with the name of its upstream. Two of one name, and names
 *    that no tool may have, are an error at the start that lists them all; later newcomers of a taken name are logged and left out.
 * W5 Callers of an upstream with `credentials` are listed what it offers to each of them.
 * W8 What an upstream offered last stays listed while it does not answer.
 */

import type { Context, Principal, Server } from 'rondo'
import { type Client, displayText, type FlowRequest, PeerError, type QuestionKind } from 'rondo/client'
import { type Forwarded, forwarding, type RowsFor } from 'rondo/forward'
import { createCallerLists } from './callers.ts'
import { withoutAdded } from './host.ts'
import type { GatewayOptions } from './options.ts'
import { type Passing, pass } from './pass.ts'
import type { Passed } from './send.ts'
import type { Subscriptions } from './subscriptions.ts'
import { reasonOf, type Upstream, UpstreamDown } from './upstream.ts'

export type Listing = 'tools' | 'prompts' | 'resources' | 'templates'
type Row = Readonly<Record<string, unknown>>

interface Entry {
  readonly listing: Listing
  /** The name under which it is offered. */
  readonly name: string
  readonly upstream: string
  readonly row: Row
  /** The row as the upstream sent it. */
  readonly own: Row
  readonly forwarded: Forwarded
}

export interface Catalog {
  /** Reads what an upstream offers. Rejects if it does not answer, and keeps what it offered before. */
  sync(upstream: Upstream): Promise<void>
  /**
   * Declares what was read. The first time, names that clash are an error; later they are logged. `changed` is a list that an upstream
   * says has changed: clients hear of it even if its rows are the same.
   */
  publish(changed?: 'tools' | 'prompts' | 'resources'): void
  /** Makes sure that what this caller names can be found, if it is offered to the caller and perhaps to nobody else. */
  admit(listing: Listing, name: string, principal: Principal | undefined): Promise<void>
  /** Whether this caller reads the resource of this upstream under the URI, as far as lists say. */
  serves(upstream: Upstream, uri: string, principal: Principal | undefined): Promise<boolean>
  /** How many tools an upstream offers here. */
  count(upstream: string): number
}

interface CatalogParts {
  readonly server: Server
  readonly passing: Passing
  readonly several: boolean
  readonly upstreams: readonly Upstream[]
  /** Names of tools that are the gateway's own. */
  readonly reserved: ReadonlySet<string>
  readonly rename?: GatewayOptions['rename']
  /** The kinds to declare on a connection that is opened to read lists. */
  readonly kinds: readonly QuestionKind[]
  /** Subscriptions to resources, by upstream. */
  readonly subscriptions: ReadonlyMap<string, Subscriptions>
  /** The instructions of the gateway itself. */
  readonly instructions?: string
  warn(message: string): void
}

const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/
const KEY: Readonly<Record<Listing, string>> = {
  tools: 'name',
  prompts: 'name',
  resources: 'uri',
  templates: 'uriTemplate',
}

export function createCatalog(parts: CatalogParts): Catalog {
  const { server, several, warn } = parts
  const port = forwarding(server)
  const read = new Map<string, readonly Entry[]>()
  const declared = new Map<string, Entry>()
  const instructions = new Map<string, string>()
  let started = false
  let unlisted = false

  const rename = (upstream: string, name: string): string =>
    parts.rename?.(upstream, name) ?? (several ? `${upstream}_${name}` : name)

  const isReserved = ({ listing, name }: Entry): boolean => listing === 'tools' && parts.reserved.has(name)

  const toEntry = (upstream: Upstream, listing: Listing, row: Row): Entry => {
    const own = String(row[KEY[listing]])
    const named = listing === 'tools' || listing === 'prompts'
    const name = named ? rename(upstream.name, own) : own
    const { execution: _, ...rest } = row
    return {
      listing,
      name,
      upstream: upstream.name,
      // Whether a call becomes a task is decided on each side, so the upstream's declaration does not pass.
      row: named ? { ...rest, name } : row,
      own: row,
      forwarded: forwardedOf(
        parts,
        upstream,
        listing,
        row,
        named ? { ...rest, name } : row,
        async (principal) => {
          if (principal === undefined || upstream.options.credentials === undefined) return undefined
          const offered = callers.known(upstream, principal) ?? (await callers.of(upstream, principal))
          return offered.get(`${listing}\n${name}`)?.own
        },
      ),
    }
  }

  const readEntries = async (upstream: Upstream, principal: Principal | undefined): Promise<Entry[]> => {
    const { only, except, credentials } = upstream.options
    const names = new Set<unknown>()
    try {
      const { client } = await upstream.anyConnection(principal, parts.kinds)
      const rows = await readAll(client)
      // All callers read the same instructions, so those that one caller was given are not shown.
      if (principal === undefined) instructions.set(upstream.name, client.server.instructions ?? '')
      const allowed = ([listing, { name }]: readonly [Listing, Row]): boolean => {
        if (listing !== 'tools') return true
        names.add(name)
        return only ? only.includes(String(name)) : !except?.includes(String(name))
      }
      const offered = rows.filter((one) => allowed(one) && !(several && isLooped(upstream, one)))
      const looped = rows.filter(allowed).length - offered.length
      if (looped > 0)
        warn(
          `${looped} of what "${upstream.name}" offers went through ${MAX_TURNS} gateways of that name, which is probably a loop: "${upstream.name}" may lead back to this one. It is not offered.`,
        )
      return offered.map(([listing, row]) => toEntry(upstream, listing, row))
    } catch (error) {
      // A server that refuses everybody who is nobody still serves its callers.
      if (principal !== undefined || !(error instanceof UpstreamDown && error.isRefusal)) throw error
      return []
    } finally {
      for (const name of credentials === undefined && names.size > 0
        ? [...(only ?? []), ...(except ?? [])]
        : [])
        if (!names.has(name)) warn(`"${upstream.name}" has no tool "${name}", which only or except names.`)
    }
  }
  const knowing = parts.upstreams.filter(({ options }) => options.credentials !== undefined)
  const callers = createCallerLists<Entry>({
    clock: parts.passing.clock,
    warn,
    async read(upstream, principal) {
      const entries = await readEntries(upstream, principal)
      const offered = entries.filter(
        (entry) =>
          entry.listing !== 'tools' || (!isReserved(entry) && (!several || TOOL_NAME.test(entry.name))),
      )
      return new Map(offered.map((entry) => [`${entry.listing}\n${entry.name}`, entry]))
    },
  })
  const unlistedEntries = new Map<string, Entry>()
  /** Whether the upstream can offer something under this name. */
  const mayOffer = ({ name: upstream }: Upstream, { listing, name }: Entry): boolean =>
    KEY[listing] !== 'name' || parts.rename !== undefined || name.startsWith(`${upstream}_`)
  /** The upstreams whose entry of this name some callers may be listed in place of this one. */
  const rivalsOf = (entry: Entry): readonly Upstream[] => {
    const rivals = knowing.filter((one) => mayOffer(one, entry))
    return rivals.length > 1 && rivals.some(({ name }) => name === entry.upstream) ? rivals : []
  }
  /** W5: one name may be offered to two callers by different upstreams. Each reaches the one that it is listed. */
  const routed = (entry: Entry): Forwarded => {
    const { forwarded } = entry
    const rivals = rivalsOf(entry)
    if (rivals.length === 0) return forwarded
    const key = `${entry.listing}\n${entry.name}`
    const listed = (principal: Principal): Forwarded | undefined =>
      rivals.map((one) => callers.known(one, principal)?.get(key)?.forwarded).find(Boolean)
    const forwardedFor = async (principal: Principal | undefined): Promise<Forwarded> => {
      if (principal === undefined) return forwarded
      const isRead = rivals.every((one) => callers.known(one, principal) !== undefined)
      if (!isRead) await Promise.all(rivals.map((one) => callers.of(one, principal)))
      return listed(principal) ?? forwarded
    }
    return {
      ...forwarded,
      run: async (args, ctx) => (await forwardedFor(ctx.principal)).run(args, ctx),
      ...(forwarded.complete && {
        complete: async (argument, known, principal) =>
          (await (await forwardedFor(principal)).complete?.(argument, known, principal)) ?? { values: [] },
      }),
      ...(forwarded.watch && {
        watch: (uri, principal, changed) =>
          ((principal && listed(principal)) ?? forwarded).watch?.(uri, principal, changed),
      }),
    }
  }
  const rowsFor: RowsFor = async (listing, principal, rows) => {
    if (principal === undefined) return rows
    const names = new Set(knowing.map(({ name }) => name))
    const keyOf = (row: Row): string => `${listing}\n${row[KEY[listing]]}`
    const shared = rows.filter((row) => !names.has(declared.get(keyOf(row))?.upstream ?? ''))
    const found = new Map(shared.map((row) => [keyOf(row), row]))
    for (const entries of await Promise.all(knowing.map((one) => callers.of(one, principal))))
      for (const [key, { row, ...entry }] of entries)
        if (entry.listing === listing && !found.has(key)) found.set(key, row)
    return [...found.values()]
  }
  if (knowing.length > 0) port.lists(rowsFor)

  /** Returns false for an entry that cannot be served, such as a template that is none: the others are offered all the same. */
  const declare = (entry: Entry): boolean => {
    const { listing, name, upstream } = entry
    try {
      port.declare(listing, name, routed(entry))
      return true
    } catch (error) {
      warn(`"${displayText(name)}" of "${upstream}" is not offered: ${reasonOf(error)}.`)
      return false
    }
  }

  const admit: Catalog['admit'] = async (listing, name, principal) => {
    const keyOf = (entry: Pick<Entry, 'listing' | 'name'>): string => `${entry.listing}\n${entry.name}`
    const isKnown = (key: string): boolean => declared.has(key) || unlistedEntries.has(key)
    if (principal === undefined || knowing.length === 0 || isKnown(keyOf({ listing, name }))) return
    for (const entries of await Promise.all(knowing.map((one) => callers.of(one, principal)))) {
      const named = entries.get(keyOf({ listing, name }))
      // The URI of a resource may be one of a template.
      const others = listing === 'resources' ? [...entries.values()] : []
      for (const entry of named ? [named] : others.filter((one) => one.listing === 'templates')) {
        if (isKnown(keyOf(entry))) continue
        const [oldest] = unlistedEntries.values()
        if (oldest !== undefined && unlistedEntries.size >= MAX_UNLISTED) {
          port.remove(oldest.listing, oldest.name)
          unlistedEntries.delete(keyOf(oldest))
        }
        const { row: _, ...forwarded } = entry.forwarded
        if (declare({ ...entry, forwarded })) unlistedEntries.set(keyOf(entry), entry)
      }
    }
  }

  return {
    async sync(upstream) {
      callers.forget(upstream)
      read.set(upstream.name, await readEntries(upstream, undefined))
    },
    admit,
    async serves({ name }, uri, principal) {
      // A single upstream also serves what it does not list.
      if (!several) return true
      await admit('resources', uri, principal)
      const key = `resources\n${uri}`
      return (declared.get(key) ?? unlistedEntries.get(key))?.upstream === name
    },
    publish(changed) {
      const told = new Set<Listing>(changed && [changed])
      const wanted = new Map<string, Entry>()
      const problems: string[] = []
      const entries = parts.upstreams.flatMap(({ name }) => read.get(name) ?? [])
      const isOwner = (entry: Entry): boolean =>
        declared.get(`${entry.listing}\n${entry.name}`)?.upstream === entry.upstream
      // A name that is taken stays with its upstream, whatever the others offer later.
      for (const entry of [...entries.filter(isOwner), ...entries.filter((one) => !isOwner(one))]) {
        const key = `${entry.listing}\n${entry.name}`
        const first = wanted.get(key)
        if (isReserved(entry)) {
          problems.push(`"${entry.upstream}" and the gateway both offer the tool "${entry.name}"`)
          continue
        }
        if (first !== undefined && first.upstream === entry.upstream)
          warn(
            `"${entry.upstream}" offers the ${entry.listing.slice(0, -1)} "${displayText(entry.name)}" twice; the first one is offered.`,
          )
        else if (first !== undefined)
          problems.push(
            `"${entry.upstream}" and "${first.upstream}" both offer the ${entry.listing.slice(0, -1)} "${displayText(entry.name)}"`,
          )
        else if (several && entry.listing === 'tools' && !TOOL_NAME.test(entry.name))
          warn(
            `"${displayText(entry.name)}" of "${entry.upstream}" is not offered: it is not a valid name of a tool. If it is too long, give the server a shorter name.`,
          )
        else wanted.set(key, entry)
      }
      const clashes = problems.filter((one) => !/ the (resource|template) "/.test(one))
      if (!started && clashes.length > 0)
        throw new TypeError(
          `${clashes.join('; ')}. Rename the servers, or leave tools out with only or except.`,
        )
      for (const problem of problems) warn(`${problem}; the first one is offered.`)
      started = true
      for (const [key, { listing, name }] of declared) {
        if (wanted.has(key)) continue
        port.remove(listing, name)
        declared.delete(key)
        told.add(listing)
      }
      for (const [key, entry] of wanted) {
        const before = declared.get(key)
        if (before && before.upstream === entry.upstream && isSame(before.row, entry.row)) continue
        unlistedEntries.delete(key)
        if (declare(entry)) declared.set(key, entry)
        told.add(entry.listing)
      }
      for (const listing of told) port.changed(listing)
      const [one] = several ? [] : parts.upstreams
      if (one !== undefined && !unlisted && one.known.resources === true) {
        unlisted = true
        port.declare('templates', UNLISTED, unlistedOf(parts, one))
      }
      port.instruct(joined(parts, instructions))
    },
    count: (upstream) => read.get(upstream)?.filter(({ listing }) => listing === 'tools').length ?? 0,
  }
}

/** Names that only some callers are offered; the oldest is evicted, and declared again when it is used. */
const MAX_UNLISTED = 10_000
const UNLISTED = 'gateway:unlisted'

/** How often a name may begin with its upstream's: in a loop of gateways names become longer without end. */
const MAX_TURNS = 8

/** W10: whether what an upstream offers has gone round in a loop of gateways. */
function isLooped({ name: upstream }: Upstream, [listing, { name }]: readonly [Listing, Row]): boolean {
  if (KEY[listing] !== 'name') return false
  const prefix = new RegExp(`(?<=^|_)${upstream.replaceAll('.', '\\.')}_`, 'g')
  return (String(name).match(prefix)?.length ?? 0) >= MAX_TURNS
}

/** A single upstream may serve URIs that it does not list, as on a direct connection. */
function unlistedOf({ passing, subscriptions }: CatalogParts, upstream: Upstream): Forwarded {
  return {
    matches: () => true,
    upstream: () => ({ name: upstream.name, revision: upstream.known.revision }),
    run: (args, ctx) =>
      pass(
        passing,
        { upstream, annotations: {}, request: { method: 'resources/read', uri: String(args.uri) } },
        ctx,
      ),
    watch: (uri, principal, changed) =>
      subscriptions.get(upstream.name)?.watch({ uri, principal, annotations: {} }, changed),
  }
}

/** Characters of one upstream's instructions that pass. A model reads them all. */
const MAX_INSTRUCTIONS = 8_192

/** The instructions of the gateway and of its upstreams; with several, each behind the name of its upstream. */
function joined(
  { instructions: own, upstreams, several }: CatalogParts,
  given: ReadonlyMap<string, string>,
): string | undefined {
  const all = upstreams.flatMap(({ name }) => {
    const text = given.get(name)?.slice(0, MAX_INSTRUCTIONS)
    return text ? [several ? `${name}: ${text}` : text] : []
  })
  if (own) all.unshift(own)
  return all.length > 0 ? all.join('\n\n') : undefined
}

function annotationsOf({ annotations }: Row): Row {
  return typeof annotations === 'object' && annotations !== null ? (annotations as Row) : {}
}

function isTaskOnly({ execution }: Row): boolean {
  return (
    typeof execution === 'object' &&
    execution !== null &&
    'taskSupport' in execution &&
    execution.taskSupport === 'required'
  )
}

function isSame(a: Row, b: Row): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b)
}

const METHOD_NOT_FOUND = -32601

/** All rows of an upstream, by listing. Lists that it does not declare are not asked for. */
async function readAll(client: Client): Promise<(readonly [Listing, Row])[]> {
  const { tools, prompts, resources } = client.server.capabilities
  const list = async (listing: Listing, declaredBy: unknown, read: () => Promise<readonly Row[]>) => {
    if (declaredBy === undefined) return []
    try {
      return (await read()).map((row) => [listing, row] as const)
    } catch (error) {
      if (error instanceof PeerError && error.peer.code === METHOD_NOT_FOUND) return []
      throw error
    }
  }
  const fresh = { fresh: true }
  const all = await Promise.all([
    list('tools', tools, () => client.listTools(fresh)),
    list('prompts', prompts, () => client.listPrompts(fresh)),
    list('resources', resources, () => client.listResources(fresh)),
    list('templates', resources, () => client.listResourceTemplates(fresh)),
  ])
  return all.flat()
}

function forwardedOf(
  { passing, kinds, subscriptions }: CatalogParts,
  upstream: Upstream,
  listing: Listing,
  own: Row,
  row: Row,
  /** The row that this caller is given, if it is another one. */
  rowOf: (principal: Principal | undefined) => Promise<Row | undefined>,
): Forwarded {
  const name = String(own[KEY[listing]])
  const annotations = annotationsOf(own)
  const requestFor = (args: Row, { inputSchema }: Row): FlowRequest => {
    if (listing === 'tools') return { method: 'tools/call', name, arguments: withoutAdded(args, inputSchema) }
    if (listing === 'prompts')
      return { method: 'prompts/get', name, arguments: args as Readonly<Record<string, string>> }
    return { method: 'resources/read', uri: String(args.uri) }
  }
  const run = async (args: Row, ctx: Context) => {
    const mine = (await rowOf(ctx.principal)) ?? own
    const passed: Passed = {
      upstream,
      request: requestFor(args, mine),
      annotations: annotationsOf(mine),
      structured: mine.outputSchema !== undefined,
      isTask: isTaskOnly(mine),
    }
    return pass(passing, passed, ctx)
  }
  const completes = listing === 'prompts' || listing === 'templates'
  const watch: Forwarded['watch'] = (uri, principal, changed) =>
    subscriptions.get(upstream.name)?.watch({ uri, principal, annotations }, changed)
  const watched = KEY[listing] === 'name' ? {} : { watch }
  const common = {
    row,
    run,
    upstream: () => ({ name: upstream.name, revision: upstream.known.revision }),
    mayBeTask: passing.approvals !== undefined,
    ...watched,
  }
  if (!completes) return common
  const ref =
    listing === 'prompts' ? ({ kind: 'prompt', name } as const) : ({ kind: 'template', uri: name } as const)
  return {
    ...common,
    async complete(argument, known, principal) {
      // Suggestions tell what the prompt or resource would, so whoever may not use it gets none.
      const facts = { upstream: upstream.name, tool: name, annotations, ...(principal && { principal }) }
      const args = { ...known, [argument.name]: argument.value }
      const method = listing === 'prompts' ? 'prompts/get' : 'resources/read'
      const { decide } = passing
      if (decide && (await decide({ ...facts, method, arguments: args })) !== 'allow') return { values: [] }
      const { client } = await upstream.anyConnection(principal, kinds)
      if (client.server.capabilities.completions === undefined) return { values: [] }
      return client.complete({ ref, argument, known })
    },
  }
}
