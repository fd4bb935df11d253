/**
 * The instances of the console: real processes of the user's server, one per slot. A slot that was killed stays down until it
 * is started again; one that exits by itself, or after draining, gets a new process.
 *
 * fleet 1: A reload starts the new process of a slot before it drains the old one; if the file cannot be served, the old
 * one keeps serving. fleet 2: No process outlives the supervisor: each also exits when its IPC channel closes.
 */

import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { ApprovalVote } from 'rondo/extension'
import type { Io } from '../io.ts'
import { endProcess, firstReport, startProcess } from '../server-process.ts'
import type {
  DeliveryReport,
  DeskReply,
  Happening,
  InstanceMessage,
  InstanceView,
  Served,
  StoredTask,
  SupervisorMessage,
} from './event.ts'

export interface FleetOptions {
  readonly io: Pick<Io, 'cwd'>
  /** Arguments for `process.execPath`. */
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly count: number
  onHappening(happening: Happening): void
}

export interface LocalFleet {
  /** Resolves with why the file cannot be served; undefined if all instances are up. */
  start(): Promise<string | undefined>
  /** The next instance in turn, except `avoid`; or the one named `only`, if it is up. */
  pick(choice?: { readonly avoid?: string; readonly only?: string }): Up | undefined
  views(): readonly InstanceView[]
  /** The export of the file; undefined until an instance is up. */
  served(): Served | undefined
  /** The tasks in the stores of the instances, one list for each; an instance that is busy has an empty one. */
  look(): readonly Promise<readonly StoredTask[] | undefined>[]
  /** Has an instance deliver an event to a hook. */
  deliver(hook: string, event: unknown): Promise<DeliveryReport>
  /** The requests for approval, or what became of a vote. */
  approvals(vote?: ApprovalVote): Promise<DeskReply>
  /** Ends the process at once, as a crash would. False if it is not running. */
  kill(name: string): Promise<boolean>
  /** Lets the process finish its calls, then replaces it. */
  drain(name: string): Promise<string>
  /** Starts a process in a slot that is down. */
  revive(name: string): Promise<string | undefined>
  /** Replaces all processes, one after the other. Resolves with why the file cannot be served, if so. */
  reload(): Promise<string | undefined>
  stop(): Promise<void>
}

export interface Up {
  readonly name: string
  readonly port: number
  /** The port for the routes of extensions, if there are any. */
  readonly pages?: number
}

type FirstMessage = Extract<InstanceMessage, { kind: 'listening' | 'failed' }>

interface Slot {
  readonly name: string
  child?: ChildProcess
  port?: number
  pages?: number
  state: InstanceView['state']
  note?: string
  /** The reason for which the process of this slot is about to exit. */
  intent?: 'kill' | 'replace'
  /** Consecutive exits without a request. */
  crashes: number
}

const MAX_CRASHES = 5

export function createFleet(options: FleetOptions): LocalFleet {
  const slots: Slot[] = Array.from({ length: options.count }, (_, i) => ({
    name: nameOf(i),
    state: 'down',
    crashes: 0,
  }))
  /** Every process that has not exited, old ones included. */
  const alive = new Set<ChildProcess>()
  let next = 0
  let asked = 0
  let stopped = false
  let served: Served | undefined
  let turn: Promise<unknown> = Promise.resolve()

  const killAll = (): void => {
    for (const child of alive) child.kill('SIGKILL')
  }
  process.once('exit', killAll)

  const tell = (slot: Slot): void => options.onHappening({ kind: 'instance', instance: viewOf(slot) })
  const nextId = (): number => {
    asked += 1
    return asked
  }
  const running = (): ChildProcess[] =>
    slots.flatMap(({ child, state }) => (state === 'up' && child ? [child] : []))
  const find = (name: string): Slot | undefined => slots.find((slot) => slot.name === name)

  function launch(slot: Slot): ChildProcess {
    const child = startProcess(options.args, options.io.cwd, options.env)
    alive.add(child)
    child.once('exit', () => alive.delete(child))
    child.on('error', () => alive.delete(child))
    // The file may send messages too, `null` for example.
    child.on('message', (message: InstanceMessage | null) => {
      if (message?.kind === 'event')
        options.onHappening({ ...message.happening, instance: slot.name } as Happening)
    })
    return child
  }

  /** Starts a process for the slot and puts it in place. Resolves with why it failed, if so. */
  async function fill(slot: Slot): Promise<string | undefined> {
    if (stopped) return undefined
    const child = launch(slot)
    if (slot.child === undefined) {
      slot.state = 'starting'
      tell(slot)
    }
    const message = await firstReport<FirstMessage>(child, ['listening', 'failed'])
    if (message.kind === 'failed' || stopped) {
      await endProcess(child)
      const reason = message.kind === 'failed' ? message.message : undefined
      if (slot.child === undefined) slot.state = 'down'
      slot.note = reason
      tell(slot)
      return reason
    }
    const old = slot.child
    const { port, pages, exported, isOfficial, routes } = message
    served = { exported, isOfficial, routes }
    Object.assign(slot, { child, port, pages, state: 'up', note: undefined, intent: undefined })
    tell(slot)
    child.once('exit', (code, signal) => onExit(slot, child, signal ?? `exit code ${code}`))
    if (old !== undefined) void endProcess(old)
    return undefined
  }

  function onExit(slot: Slot, child: ChildProcess, how: string): void {
    if (slot.child !== child || stopped) return
    const { intent } = slot
    Object.assign(slot, { child: undefined, port: undefined, state: 'down', intent: undefined })
    if (intent === 'kill') slot.note = 'killed'
    else if (intent === 'replace') slot.note = 'drained'
    else {
      slot.crashes += 1
      slot.note = `exited by itself (${how})`
    }
    tell(slot)
    // A server that keeps dying is left alone, so that its reason can be read.
    if (intent !== 'kill' && slot.crashes < MAX_CRASHES) void fill(slot)
  }

  const inTurn = <T>(run: () => Promise<T>): Promise<T> => {
    const result = turn.then(run)
    turn = result.catch(() => {})
    return result
  }

  return {
    views: () => slots.map(viewOf),
    served: () => served,
    look: () => running().map(lookInto),
    pick({ avoid, only } = {}) {
      const ups = slots.filter((slot) => slot.state === 'up' && slot.port !== undefined)
      const chosen =
        only === undefined
          ? ups.filter(({ name }) => name !== avoid)
          : ups.filter(({ name }) => name === only)
      const slot = chosen.length === 0 ? undefined : chosen[next++ % chosen.length]
      if (slot?.port === undefined) return undefined
      const { name, port, pages } = slot
      return { name, port, ...(pages !== undefined && { pages }) }
    },
    async deliver(hook, event) {
      let report: DeliveryReport = { kind: 'failed', problem: 'No instance is up' }
      // A store in memory is only in the instance that runs the task.
      for (const child of running()) {
        const reply = await askInstance(child, { kind: 'deliver', id: nextId(), hook, event })
        report = reply?.kind === 'delivered' ? reply.delivery : { kind: 'failed', problem: ENDED }
        if (report.kind !== 'unknown') return report
      }
      return report
    },
    async approvals(vote) {
      let report: DeskReply = { kind: 'refused', problem: 'No instance is up' }
      for (const child of running()) {
        const reply = await askInstance(child, { kind: 'approvals', id: nextId(), ...(vote && { vote }) })
        report = reply?.kind === 'approvals' ? reply.reply : { kind: 'refused', problem: ENDED }
        if (report.kind !== 'refused') return report
      }
      return report
    },
    async start() {
      const [first, ...others] = slots
      // If the file is broken, one process is enough to find out.
      const failed = first && (await fill(first))
      if (failed !== undefined) return failed
      const results = await Promise.all(others.map(fill))
      return results.find((reason) => reason !== undefined)
    },
    async kill(name) {
      const slot = find(name)
      if (slot?.child === undefined) return false
      slot.intent = 'kill'
      const gone = once(slot.child, 'exit')
      slot.child.kill('SIGKILL')
      await gone
      return true
    },
    async drain(name) {
      const slot = find(name)
      const child = slot?.child
      if (slot === undefined || child === undefined) return 'It is not running'
      Object.assign(slot, { state: 'draining', intent: 'replace' })
      tell(slot)
      await endProcess(child)
      return child.signalCode === 'SIGKILL'
        ? 'It did not finish in time and was killed'
        : 'It finished its calls and exited'
    },
    async revive(name) {
      const slot = find(name)
      if (slot === undefined || slot.child !== undefined) return undefined
      slot.crashes = 0
      return inTurn(() => fill(slot))
    },
    reload: () =>
      inTurn(async () => {
        for (const slot of slots) {
          slot.crashes = 0
          const failed = await fill(slot)
          if (failed !== undefined) return failed
        }
        return undefined
      }),
    async stop() {
      stopped = true
      await Promise.all([...alive].map(endProcess))
      process.off('exit', killAll)
    },
  }
}

function nameOf(index: number): string {
  const letter = String.fromCharCode(65 + (index % 26))
  return index < 26 ? letter : `${letter}${Math.floor(index / 26)}`
}

function viewOf({ name, child, state, note }: Slot): InstanceView {
  return {
    name,
    state,
    ...(child?.pid !== undefined && { pid: child.pid }),
    ...(note !== undefined && { note }),
  }
}

const LOOK_MS = 1_000

/** The tasks that a process reports; undefined if it takes too long. */
function lookInto(child: ChildProcess): Promise<readonly StoredTask[] | undefined> {
  return new Promise((done) => {
    const end = (tasks?: readonly StoredTask[]): void => {
      clearTimeout(timer)
      child.off('message', read)
      done(tasks)
    }
    const read = (message: InstanceMessage | null): void => {
      if (message?.kind === 'tasks') end(message.tasks)
    }
    const timer = setTimeout(end, LOOK_MS)
    child.on('message', read)
    child.send({ kind: 'look' } satisfies SupervisorMessage, (error) => error && end([]))
  })
}

const ENDED =
  'The instance ended before it responded. Its work is not lost: sending the same request again changes nothing twice'

type Asked = Extract<SupervisorMessage, { id: number }>
type Reply = Extract<InstanceMessage, { id: number }>

/** Sends a request to an instance; undefined if it ends before it replies. */
function askInstance(child: ChildProcess, message: Asked): Promise<Reply | undefined> {
  return new Promise((done) => {
    const end = (reply?: Reply): void => {
      child.off('message', read).off('exit', gone)
      done(reply)
    }
    const read = (reply: InstanceMessage | null): void => {
      if (reply !== null && 'id' in reply && reply.id === message.id) end(reply)
    }
    const gone = (): void => end()
    child.on('message', read).once('exit', gone)
    child.send(message, (error) => error && gone())
  })
}
