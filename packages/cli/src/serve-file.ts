/**
 * The process in which a file's server runs: `serve-file FILE stdio`, or `serve-file FILE http HOST PORT` with an IPC channel,
 * on which it reports to the parent where it listens. `serve-file FILE deliver HOOK JSON` serves nothing: it delivers one event.
 * `serve-file FILE approvals JSON` serves nothing either: it does one task of an operator. The process exits when the parent is gone or the file cannot be
 * served, whatever the file has started by then. Servers are in development mode: whoever runs a file is its author, and sees
 * the messages that are written for authors.
 */

import type { EventDelivery } from 'rondo'
import type { ApprovalDesk, DeskEntry, DeskNote, DeskOutcome, DeskRequest } from 'rondo/extension'
import { approverOf, develop, mountedHere } from 'rondo/internal'
import { loadServer, sayFailure, sayReason } from './load-server.ts'

/** What an operator wants of the approvals. */
export type DeskTask =
  | { readonly action: 'list'; readonly label: 'open' | 'closed'; readonly limit: number }
  | { readonly action: 'show'; readonly id: string }
  | { readonly action: 'verify'; readonly head?: { readonly seq: number; readonly hash: string } }
  | { readonly action: 'export' }
  | {
      readonly action: 'decide'
      readonly id: string
      readonly approve: boolean
      readonly operator: string
      readonly note?: DeskNote
    }

/** A request without the hook, which wakes its task. */
export type ShownRequest = Omit<DeskRequest, 'hook'>
export type ShownEntry = Pick<DeskEntry, 'seq' | 'at' | 'happening'>

export type DeskReply =
  | { readonly kind: 'list'; readonly requests: readonly ShownRequest[] }
  | { readonly kind: 'show'; readonly request?: ShownRequest; readonly history: readonly ShownEntry[] }
  | {
      readonly kind: 'verify'
      readonly tenant: string
      readonly keys: Readonly<Record<string, string>>
      readonly verification: Awaited<ReturnType<ApprovalDesk['verify']>>
    }
  | { readonly kind: 'exported' }
  | { readonly kind: 'decided'; readonly outcome: DeskOutcome }

export type ServeReport =
  | { readonly kind: 'approvals'; readonly reply: DeskReply }
  /** A part of the record. The reply comes after the last one. */
  | { readonly kind: 'exported'; readonly lines: readonly object[] }
  | { readonly kind: 'delivered'; readonly delivery: EventDelivery }
  | { readonly kind: 'listening'; readonly url: string; readonly port: number }
  | { readonly kind: 'failed'; readonly message: string }
  /** The address cannot be used; no change of the file helps. */
  | { readonly kind: 'unusable'; readonly message: string }

const [path = '', entrance, ...rest] = process.argv.slice(2)
const [host, port] = rest

async function serveHttp(): Promise<void> {
  let close = async (): Promise<void> => {}
  process.on('disconnect', () => void close().finally(() => process.exit(0)))
  const { server } = await loadServer(path)
  const listening = await server.listen({ host, port: Number(port) }).catch((error: Error) => {
    // A store without its package, say, is a mistake in the file.
    exitWith(error instanceof TypeError ? 'failed' : 'unusable', sayReason(error))
    return undefined
  })
  if (listening === undefined) return
  close = () => listening.close()
  process.send?.({ kind: 'listening', url: listening.url, port: listening.port } satisfies ServeReport)
}

async function serveStdio(): Promise<void> {
  const { server } = await loadServer(path)
  await server.stdio()
}

async function deliver(): Promise<void> {
  const [hook = '', event = ''] = rest
  const { server } = await loadServer(path)
  try {
    const delivery = await server.deliver(hook, JSON.parse(event))
    process.send?.({ kind: 'delivered', delivery } satisfies ServeReport)
  } catch (error) {
    exitWith('failed', sayReason(error))
  }
}

async function operate(): Promise<void> {
  const task = JSON.parse(rest[0] ?? '') as DeskTask
  const { server } = await loadServer(path)
  try {
    const desk = [server, ...mountedHere()]
      .map(approverOf)
      .find((one) => one !== undefined)
      ?.desk?.()
    if (!desk) throw new TypeError('The server uses no approvals: server.use(createApprovals({ … }))')
    const reply = await runTask(desk, task)
    // Messages that are being sent are sent first.
    await server.close()
    process.send?.({ kind: 'approvals', reply } satisfies ServeReport)
  } catch (error) {
    exitWith('failed', sayReason(error))
  }
}

async function runTask(desk: ApprovalDesk, task: DeskTask): Promise<DeskReply> {
  switch (task.action) {
    case 'list': {
      const { requests } = await desk.list([task.label], task.limit)
      return { kind: 'list', requests: requests.map(toShown) }
    }
    case 'show': {
      const request = await desk.get(task.id)
      const history = request === undefined ? [] : await desk.history(task.id)
      const entries = history.map(({ seq, at, happening }) => ({ seq, at, ...(happening && { happening }) }))
      return { kind: 'show', ...(request && { request: toShown(request) }), history: entries }
    }
    case 'verify': {
      const { tenant } = desk
      const [keys, verification] = await Promise.all([desk.publicKeys(), desk.verify(task.head)])
      return { kind: 'verify', tenant, keys, verification }
    }
    case 'export':
      await exportRecord(desk)
      return { kind: 'exported' }
    case 'decide': {
      const { id, approve, operator, note } = task
      return { kind: 'decided', outcome: await desk.decide(id, approve, operator, note) }
    }
  }
}

function toShown(request: DeskRequest): ShownRequest {
  const { hook: _, ...shown } = request
  return shown
}

const EXPORT_PAGE = 500

/** Sends the record in parts, each after the one before has been taken. */
async function exportRecord(desk: ApprovalDesk): Promise<void> {
  const send = (lines: readonly object[]): Promise<void> =>
    new Promise((done) => {
      process.send?.({ kind: 'exported', lines } satisfies ServeReport, () => done())
    })
  await send([{ tenant: desk.tenant, keys: await desk.publicKeys() }])
  for (let after = 0; ; ) {
    const entries = await desk.entries(after, EXPORT_PAGE)
    const last = entries.at(-1)
    if (last === undefined) return
    await send(entries)
    after = last.seq
  }
}

/** Reports the failure on the channel, or on stderr if there is none, and exits. */
function exitWith(kind: 'failed' | 'unusable', message: string): void {
  const exit = (): never => process.exit(1)
  if (process.send === undefined) process.stderr.write(`${message}\n`, exit)
  else process.send({ kind, message } satisfies ServeReport, exit)
}

try {
  develop({})
  const entrances: Readonly<Record<string, () => Promise<void>>> = {
    stdio: serveStdio,
    deliver,
    approvals: operate,
  }
  await (entrances[entrance ?? ''] ?? serveHttp)()
} catch (error) {
  exitWith('failed', sayFailure(error))
}
