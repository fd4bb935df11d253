/**
 * The requests of the page of `rondo console --store`: an operator's work on a live store, done by the functions of `rondo tasks`.
 * Every request opens the store and closes it, so that a store that was away, or was replaced, is found again.
 *
 * desk 1: Nothing opens the store for changes unless somebody acts (`who`), whatever the page sends. desk 2: Whose name is
 * recorded, which keys are used and whether values are shown is decided by the command line, never by a request. desk 3: A reply
 * has a bounded size, however long what others wrote into a task is.
 */

import { escapeUnsafe, isRecord } from 'rondo/internal'
import type { OperatorAction, TaskStats, TaskSummary } from 'rondo/store'
import { CommandError, type Options, usageError } from '../command-line.ts'
import { type NamedStore, openTables } from '../open-store.ts'
import {
  atDesk,
  type Changed,
  changeTask,
  changeTool,
  type Keys,
  listPage,
  NoSuchTask,
  pausedTools,
  readQuery,
  STATUSES,
  type StorePlace,
  showOne,
  TASK_ACTIONS,
  TOOL_ACTIONS,
  waitsFor,
} from '../operate.ts'
import { ActionError, type Api } from './web.ts'

export interface StoreDeskOptions {
  readonly place: StorePlace
  readonly keys: Keys
  /** Arguments, answers and results are shown. */
  readonly content: boolean
  /** Who acts; undefined for a console that only shows. */
  readonly who: string | undefined
  readonly now: () => number
}

/** What the page shows beside tasks. */
export interface DeskStatus {
  /** The store, without its password. */
  readonly store: string
  readonly who?: string
  readonly hasKeys: boolean
  readonly statuses: readonly string[]
}

/** A task in the list. */
export interface DeskTask extends Omit<TaskSummary, 'owner'> {
  /** TENANT/TAG, as the filter takes it. */
  readonly owner: string
  readonly waits: string
}

export interface DeskPage {
  readonly tasks: readonly DeskTask[]
  /** The place at which the next page begins. */
  readonly next?: string
  readonly stats: TaskStats
}

export interface DeskEntry {
  readonly kind: string
  readonly key: string
  readonly at: string
  /** The recorded values as JSON. */
  readonly values?: string
}

export interface DeskView {
  readonly task: DeskTask
  /** Everything else that the keys open. */
  readonly opened: readonly (readonly [name: string, value: string])[]
  readonly journal: readonly DeskEntry[]
}

export interface DeskLog {
  readonly actions: readonly OperatorAction[]
}

export interface DeskTools {
  readonly paused: readonly string[]
}

/** `confirm`: nothing was changed, because a person has to read this first. */
export type DeskReply =
  | ({ readonly kind: 'changed' } & Changed)
  | { readonly kind: 'confirm'; readonly what: string }

export interface StoreDesk {
  /** The store, without its password. */
  readonly store: string
  readonly api: Api
  /** Resolves when no request uses the store any more. */
  close(): Promise<void>
}

/** Requests that use the store at one time. */
const MAX_OPEN = 8
const LOG_LINES = 200
const MAX_ENTRIES = 500
/** Characters of one text. */
const MAX_TEXT = 2_000
/** Characters of one text that the page sends. */
const MAX_GIVEN = 10_000
/** Texts of one list that the page sends. */
const MAX_LIST = 8

/** Throws if the store cannot be read, or with `who` cannot be changed. */
export async function openStoreDesk(options: StoreDeskOptions): Promise<StoreDesk> {
  const { place, keys, content, who, now } = options
  assertOperable(place.word)
  const running = new Set<Promise<unknown>>()

  const reading = async <T>(run: (named: NamedStore) => Promise<T>): Promise<T> => {
    const named = await openTables(place.word, place.cwd, place.schema, 'read')
    try {
      return await run(named)
    } catch (error) {
      throw named.explain(error)
    } finally {
      await named.store.close()
    }
  }
  /** Bounds what waits for a store that does not answer, and turns errors into replies. */
  const guarded =
    (run: (body: unknown) => Promise<object>) =>
    async (body: unknown): Promise<object> => {
      if (running.size >= MAX_OPEN) throw new ActionError('The store is busy; try again', 503)
      const work = run(body)
      running.add(work)
      try {
        return await work
      } catch (error) {
        throw toReply(error)
      } finally {
        running.delete(work)
      }
    }

  const hasKeys = keys() !== undefined
  const store = await reading(async (named) => {
    await named.store.tasks.stats()
    return named.name
  })
  if (who !== undefined) await atDesk(place, { keys, who }, async () => {})

  const status = async (): Promise<DeskStatus> => ({ store, who, hasKeys, statuses: STATUSES })
  const list = (body: unknown): Promise<DeskPage> => {
    const query = readQuery(toOptions(body), keys, now())
    return reading(async (named) => {
      const { tasks, next } = await listPage(named, query)
      const shown = tasks.map((task) => toRow(task, now()))
      return { tasks: shown, next, stats: await named.store.tasks.stats() }
    })
  }
  const show = (body: unknown): Promise<DeskView> => {
    const id = textOf(body, 'id')
    return reading(async (named) => {
      const { task, opened } = await showOne(named, id, keys, content)
      const { journal, ...others } = opened
      return {
        task: toRow(task, now()),
        opened: Object.entries(others).flatMap(([name, value]) =>
          value === undefined ? [] : [[name, sayText(value)] as const],
        ),
        journal: toEntries(journal),
      }
    })
  }
  const log = (): Promise<DeskLog> =>
    reading(async (named) => {
      const actions = (await named.store.operator?.actions(LOG_LINES)) ?? []
      return {
        actions: actions.map(({ at, who, action, subject }) => ({
          ...{ at, action },
          ...{ who: cut(who), subject: cut(subject) },
        })),
      }
    })
  const tools = (): Promise<DeskTools> =>
    reading(async (named) => ({ paused: (await pausedTools(named)).slice(0, MAX_ENTRIES).map(cut) }))
  const act = (body: unknown): Promise<DeskReply> => {
    if (who === undefined)
      throw new ActionError('This console is read-only. Start it with --act to change tasks', 403)
    return change(body, place, keys, who)
  }
  return {
    store,
    api: new Map([
      ['GET /api/status', status],
      ['POST /api/list', guarded(async (body) => list(body))],
      ['POST /api/show', guarded(async (body) => show(body))],
      ['GET /api/log', guarded(log)],
      ['GET /api/tools', guarded(tools)],
      ['POST /api/act', guarded(async (body) => act(body))],
    ]),
    close: async () => void (await Promise.allSettled(running)),
  }
}

class Unconfirmed extends Error {}

async function change(body: unknown, place: StorePlace, keys: Keys, who: string): Promise<DeskReply> {
  const [action, subject] = [textOf(body, 'action'), textOf(body, 'subject')]
  const onTask = TASK_ACTIONS.find((one) => one === action)
  const onTool = TOOL_ACTIONS.find((one) => one === action)
  if (onTask === undefined && onTool === undefined) throw new ActionError('Unknown action')
  const { text, flag } = toOptions(body)
  const confirm = async (what: string): Promise<void> => {
    if (!flag('yes')) throw new Unconfirmed(what)
  }
  try {
    const { outcome, says } = await atDesk(place, { keys, who }, async (desk) => {
      if (onTool) return changeTool(desk, onTool, subject)
      return changeTask(desk, onTask as NonNullable<typeof onTask>, subject, {
        ...{ message: text('message'), from: text('from'), confirm },
      })
    })
    return { kind: 'changed', outcome, says }
  } catch (error) {
    if (error instanceof Unconfirmed) return { kind: 'confirm', what: error.message }
    throw error
  }
}

/** A request in the place of a command line: the same names, read by the same code. */
function toOptions(body: unknown): Options {
  if (!isRecord(body)) throw new ActionError('The request must be an object')
  const read = (name: string): unknown => (Object.hasOwn(body, name) ? body[name] : undefined)
  const text = (name: string): string | undefined => {
    const value = read(name)
    if (value === undefined) return undefined
    if (!isText(value)) throw new ActionError(`${name} must be a string of at most ${MAX_GIVEN} characters`)
    return value
  }
  return {
    text,
    flag: (name) => read(name) === true,
    list(name) {
      const value = read(name) ?? []
      if (!Array.isArray(value) || value.length > MAX_LIST || !value.every(isText))
        throw new ActionError(
          `${name} must be a list of at most ${MAX_LIST} strings of at most ${MAX_GIVEN} characters`,
        )
      return value
    },
    number(name) {
      const value = read(name)
      if (value !== undefined && typeof value !== 'number') throw new ActionError(`${name} must be a number`)
      return value
    },
  }
}

const isText = (value: unknown): value is string => typeof value === 'string' && value.length <= MAX_GIVEN

function textOf(body: unknown, name: string): string {
  const value = toOptions(body).text(name)
  if (value === undefined || value === '') throw new ActionError(`Missing required property "${name}"`)
  return value
}

function toRow(task: TaskSummary, now: number): DeskTask {
  const { owner, tool, openKeys, openHooks, ...others } = task
  return {
    ...others,
    owner: cut(`${owner.tenant}/${owner.principal}`),
    waits: cut(waitsFor(task, now)),
    openKeys: openKeys.slice(0, MAX_ENTRIES).map(cut),
    openHooks: openHooks.slice(0, MAX_ENTRIES).map(cut),
    // A tag depends on the keys and means nothing to people.
    ...(tool !== undefined && !tool.startsWith('~') && { tool: cut(tool) }),
  }
}

function toEntries(journal: unknown): DeskEntry[] {
  const entries = Array.isArray(journal) ? (journal as Record<string, string>[]) : []
  const shown = entries.slice(0, MAX_ENTRIES).map(({ kind = '', key = '', at = '', ...values }) => ({
    ...{ kind, key, at },
    ...(Object.keys(values).length > 0 && { values: sayText(values) }),
  }))
  const left = entries.length - shown.length
  return left === 0 ? shown : [...shown, { kind: '…', key: `${left} more`, at: '' }]
}

const cut = (text: string): string => (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text)

/** Hidden characters become escapes, so that a person sees them. */
function sayText(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
  return escapeUnsafe(cut(text))
}

/** A mistake in the request is the page's; for everything else the page waits until it works again. */
function toReply(error: unknown): unknown {
  if (!(error instanceof CommandError)) return error
  const isMistake = error.exit === 'usage' || error.exit === 'failed'
  return new ActionError(error.message, error instanceof NoSuchTask ? 404 : isMistake ? 400 : 503)
}

/** Refuses a store that operators cannot use from another process. */
function assertOperable(word: string): void {
  if (/^restate\+/i.test(word))
    throw usageError(
      'Restate has no part for operators: rondo tasks list shows its tasks, and its own command cancels invocations',
    )
  if (/^:?memory:?(\/\/.*)?$/i.test(word))
    throw usageError(
      'A store in memory exists only in the process of its server: open the file with rondo console FILE, or name a SQLite file or a postgres:// URL',
    )
}
