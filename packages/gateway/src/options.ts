/** The options of a gateway and their checks. A mistake is an error when the gateway is created, before anything is connected. */

import type { Principal, ServerOptions } from 'rondo'
import type { ClientAuth, Clock, HeaderSource, Mode, RoundPolicy } from 'rondo/client'
import type { AskLocally } from './ask.ts'
import type { ApprovalTerms, Decide } from './decide.ts'

/** One server behind the gateway: a URL or a command. */
export interface UpstreamOptions {
  /** Its URL. `http:` is accepted for this machine only. Default: none, and `command` is required. */
  readonly url?: string
  /** A command that speaks MCP over stdin and stdout. Default: none, and `url` is required. */
  readonly command?: string
  /** Arguments of the command. Default: none. */
  readonly args?: readonly string[]
  /** Variables for the command, besides a few of this process such as `PATH`. Default: none. */
  readonly env?: Readonly<Record<string, string>>
  /** The folder in which the command runs. Default: that of this process. */
  readonly cwd?: string
  /** Headers for every request to the URL. All callers share them. Default: none. */
  readonly headers?: HeaderSource
  /** Logs in at the URL (`oauth()` of `rondo/client/oauth`). All callers share the login. Default: none. */
  readonly auth?: ClientAuth
  /**
   * Returns the headers with which this caller is known at the URL. The caller's own token is not available here and never goes
   * upstream. Each caller's lists are read with its headers; those of anonymous callers with the headers for `undefined`. Default: none.
   */
  readonly credentials?: (
    principal: Principal | undefined,
    upstream: string,
  ) => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>
  /** The revision to speak. Default: `auto`, the newest that it speaks. */
  readonly revision?: Mode
  /** How long one request may take; progress restarts it. Default: 2 minutes. */
  readonly timeoutMs?: number
  /** Offers only these tools, by their own names. Default: all. */
  readonly only?: readonly string[]
  /** Offers all tools but these. Default: none. */
  readonly except?: readonly string[]
}

/** The limits of held calls: those that wait for an answer at an upstream that asks while the call is open. */
export interface HoldLimits {
  /** Calls that this process holds. Default: 1000. */
  readonly maxCalls?: number
  /** Calls that are held for one caller. Default: 32. */
  readonly maxCallsPerCaller?: number
  /** Characters of the questions of all held calls. Default: 16 MiB. */
  readonly maxBytes?: number
  /** How long a held call waits for an answer. Default: 10 minutes. */
  readonly waitMs?: number
  /** How long a call waits for its turn at a process that can serve one asking call at a time. Default: 1 minute. */
  readonly queueMs?: number
  /** Connections to one upstream, for all callers and kinds of questions together. Default: 100. */
  readonly maxConnections?: number
  /** Resources of one upstream that one caller watches. Default: 1000. */
  readonly maxWatched?: number
  /** How long an unused connection stays open. Default: 5 minutes. */
  readonly idleMs?: number
}

export interface GatewayOptions extends Omit<ServerOptions, 'dropUnknownArguments'> {
  /** The servers behind the gateway, by the names that callers see. */
  readonly upstreams: Readonly<Record<string, UpstreamOptions>>
  /** The name under which a tool or prompt is offered. Default: its own with one upstream, `upstream_name` with several. */
  readonly rename?: (upstream: string, name: string) => string
  /** Decides on every call before it goes upstream. Default: all are allowed. */
  readonly decide?: Decide
  /**
   * Who decides where `decide` returns `approve`: the options of `ctx.approve` but for its message. Needs a store and `@rondo/approvals`
   * (`gateway.use`). Default: none.
   */
  readonly approvals?: ApprovalTerms
  /** Asks a person on this machine what the client cannot be asked. Default: nobody is asked, and the caller reads why. */
  readonly ask?: AskLocally
  /** Checks the questions of upstreams. Default: `noSecretsInForms()`. */
  readonly onRound?: RoundPolicy | readonly RoundPolicy[]
  /**
   * Follows tasks of upstreams for clients of 2026-07-28 that did not declare tasks. Otherwise these read the server's error, as on a
   * direct connection. Tasks are always followed for older clients. Default: true.
   */
  readonly followTasks?: boolean
  /** Limits of held calls. Default: the default of each limit. */
  readonly hold?: HoldLimits
  /** Called once for each kind of client that calls: its name, version and revision. Default: none. */
  readonly onClient?: (client: {
    readonly name?: string
    readonly version?: string
    readonly revision: string
  }) => void
  /** Receives the lines that upstream commands write to stderr. Default: they are dropped. */
  readonly onStderr?: (upstream: string, line: string) => void
  /** The clock of held calls and reconnections, for tests. Default: the system's clock. */
  readonly clock?: Clock
}

export const HOLD: Required<HoldLimits> = {
  maxCalls: 1_000,
  maxCallsPerCaller: 32,
  maxBytes: 16 * 1_048_576,
  waitMs: 600_000,
  queueMs: 60_000,
  maxConnections: 100,
  maxWatched: 1_000,
  idleMs: 300_000,
}

const UPSTREAM: Readonly<Record<keyof UpstreamOptions, true>> = {
  url: true,
  command: true,
  args: true,
  env: true,
  cwd: true,
  headers: true,
  auth: true,
  credentials: true,
  revision: true,
  timeoutMs: true,
  only: true,
  except: true,
}

/** The gateway's own options; the others belong to the server. */
export const OWN = [
  'upstreams',
  'rename',
  'decide',
  'approvals',
  'ask',
  'onRound',
  'followTasks',
  'hold',
  'onClient',
  'onStderr',
  'clock',
] as const

const MAX_LIMIT = 2_147_483_647
const NAME = /^[A-Za-z0-9_.-]{1,64}$/
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/

/** Throws a TypeError that names the option and says what to write instead. */
export function assertGatewayOptions({ upstreams, hold = {}, approvals, store }: GatewayOptions): void {
  if (typeof upstreams !== 'object' || upstreams === null || Object.keys(upstreams).length === 0)
    throw new TypeError("createGateway needs upstreams: { files: { command: 'node', args: ['files.js'] } }")
  for (const [name, upstream] of Object.entries(upstreams)) assertUpstream(name, upstream)
  if (approvals !== undefined && store === undefined)
    throw new TypeError('approvals needs a store: a call that waits for a decision is a task.')
  for (const [name, value] of Object.entries(hold)) {
    if (!Object.hasOwn(HOLD, name)) throw new TypeError(`hold has no option "${name}".`)
    // A longer timer would fire at once.
    if (value !== undefined && !(typeof value === 'number' && value >= 0 && value <= MAX_LIMIT))
      throw new TypeError(`hold.${name} must be a number from 0 to ${MAX_LIMIT}.`)
  }
}

function assertUpstream(name: string, upstream: UpstreamOptions): void {
  const of = `The server "${name}"`
  if (!NAME.test(name))
    throw new TypeError(
      `${of}: a name has 1 to 64 letters, digits, "_", "." or "-", because tools are named after it.`,
    )
  if (typeof upstream !== 'object' || upstream === null)
    throw new TypeError(`${of} must be { url } or { command }.`)
  const unknown = Object.keys(upstream).find((key) => !Object.hasOwn(UPSTREAM, key))
  if (unknown !== undefined)
    throw new TypeError(`${of} has no option "${unknown}". It has ${Object.keys(UPSTREAM).join(', ')}.`)
  const { url, command, auth, credentials, only, except } = upstream
  if ((url === undefined) === (command === undefined))
    throw new TypeError(`${of} needs either url or command.`)
  if (url !== undefined) assertUrl(of, url)
  if (command !== undefined && (auth ?? credentials ?? upstream.headers) !== undefined)
    throw new TypeError(`${of} is a command, which takes no headers, auth or credentials: pass env.`)
  if (auth !== undefined && credentials !== undefined)
    throw new TypeError(
      `${of} has both auth, which all callers share, and credentials, which are one caller's.`,
    )
  if (only !== undefined && except !== undefined)
    throw new TypeError(`${of} has both only and except: use one.`)
}

function assertUrl(of: string, url: string): void {
  if (!URL.canParse(url)) throw new TypeError(`${of}: "${url}" is not a URL.`)
  const { protocol, hostname, username, password } = new URL(url)
  if (protocol !== 'https:' && !(protocol === 'http:' && LOOPBACK.test(hostname)))
    throw new TypeError(`${of}: the URL must be https, or http on this machine; got ${url}`)
  if (username !== '' || password !== '')
    throw new TypeError(`${of}: pass credentials as headers, not in the URL.`)
}
