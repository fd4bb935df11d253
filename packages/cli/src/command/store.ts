/** `rondo store`: checks and upgrades the tables of a store, and starts a new epoch after a restore. */

import type { Store } from 'rondo/sqlite'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, CommandError, type Exit, type Invocation, usageError } from '../command-line.ts'
import { print, printJson } from '../io.ts'
import { type NamedStore, openTables } from '../open-store.ts'

const ACTIONS: Readonly<Record<string, (invocation: Invocation, named: NamedStore<Store>) => Promise<Exit>>> =
  {
    check: checkStore,
    migrate: migrateStore,
    'renew-epoch': renewEpoch,
  }

export const storeCommand: Command = {
  name: 'store',
  usage: '<action> <store>',
  summary: 'checks or upgrades the tables of a store',
  details: ['A store is a SQLite file or a `postgres://` URL, as for `rondo tasks`.'],
  table: {
    name: 'action',
    rows: {
      check:
        'prints the version of the tables and what is wrong: missing or incomplete indexes, a damaged file. Changes nothing; exits with 1 if there is a problem',
      migrate:
        'creates or upgrades the tables and builds missing indexes, while other processes use them. Run it before you start a release that needs them',
      'renew-epoch':
        'starts a new epoch: every single-use state that was handed out before is refused. For after a restore in place',
    },
  },
  json: '`{ "store": { "version", "minCompatible", "supported", "problems" } }`, or `{ "epoch" }`',
  see: 'docs/reference/stores.md',
  options: {
    schema: { type: 'string', value: 'NAME', help: 'the schema in PostgreSQL (default: rondo)' },
    ...JSON_OPTION,
  },
  async run(invocation) {
    const { io, options } = invocation
    const [action, word, ...others] = invocation.words
    const run = action !== undefined && Object.hasOwn(ACTIONS, action) ? ACTIONS[action] : undefined
    if (run === undefined) throw usageError(`Name an action: ${Object.keys(ACTIONS).join(', ')}`)
    if (word === undefined) throw usageError('Name a store: a SQLite file or a postgres:// URL')
    if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
    const mode = action === 'check' ? 'read' : action === 'migrate' ? 'create' : 'write'
    const named = await openTables(word, io.cwd, options.text('schema'), mode)
    try {
      return await run(invocation, named)
    } catch (error) {
      throw named.explain(error)
    } finally {
      await named.store.close()
    }
  },
}

async function checkStore({ io, options }: Invocation, { store, name }: NamedStore<Store>): Promise<Exit> {
  const check = await store.check?.()
  if (check === undefined) throw new CommandError('stored', `${name} has no tables to check`)
  const { version, minCompatible, supported, problems } = check
  if (version === 0) throw noStore(name)
  if (options.flag('json')) printJson(io, { store: check })
  else {
    print(
      io,
      `The tables have version ${version}; releases that support version ${minCompatible} or later can use them.`,
    )
    if (version < supported)
      print(io, `This release has version ${supported}: rondo store migrate upgrades them.`)
    for (const problem of problems) print(io, `${problem}.`)
    if (problems.length === 0) print(io, 'No problems found.')
  }
  return problems.length === 0 ? 'done' : 'failed'
}

const noStore = (name: string): CommandError =>
  new CommandError('stored', `${name} has no Rondo store: rondo store migrate creates one`)

async function migrateStore({ io, options }: Invocation, { store }: NamedStore<Store>): Promise<Exit> {
  await store.migrate?.()
  const check = await store.check?.()
  if (options.flag('json')) printJson(io, { store: check })
  else print(io, `The tables have version ${check?.version}.`)
  return 'done'
}

async function renewEpoch({ io, options }: Invocation, { store, name }: NamedStore<Store>): Promise<Exit> {
  // Opening it would create the tables.
  if ((await store.check?.())?.version === 0) throw noStore(name)
  const epoch = await store.once.renewEpoch()
  if (options.flag('json')) printJson(io, { epoch })
  else print(io, `${name} has a new epoch. Single-use states that were handed out before are refused.`)
  return 'done'
}
