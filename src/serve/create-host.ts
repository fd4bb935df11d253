/**
 * The host of calls, made from options: what a server of ours and a mount in another one have in common.
 */

import type { FlowHost } from '../carry/flow-host.ts'
import { createPlatform } from '../carry/platform.ts'
import type { KeyHolder } from '../seal/key-holder.ts'
import { resolveKeys } from '../seal/key-source.ts'
import { LEASE_MS } from '../store/lease-engine.ts'
import { resolveContinuation } from './continuation-option.ts'
import { createLog } from './log.ts'
import { resolveLimits, type ServerOptions } from './options.ts'
import { createOverload } from './overload.ts'
import { createTaskHost } from './task-work.ts'

type Shared =
  | 'keys'
  | 'dev'
  | 'limits'
  | 'store'
  | 'tasks'
  | 'continuation'
  | 'maxRoundMs'
  | 'shed'
  | 'log'
  | 'now'
  | 'randomId'

export interface HostOptions extends Pick<ServerOptions, Shared> {
  /** Which service states are sealed for. Instances of one service share it. */
  audience: string
}

export interface OpenHost extends FlowHost {
  /** From now on `draining` is true. */
  drain(): void
  /** Lets go of timers. */
  close(): void
}

export function createHost(options: HostOptions, keys: KeyHolder = resolveKeys(options.keys)): OpenHost {
  const platform = createPlatform(options)
  const log = createLog(options.log, undefined, platform.now)
  const overload = createOverload(options.shed, platform.now, (error) =>
    log({ event: 'warning', message: 'The function shed threw; nothing is shed', error }),
  )
  let draining = false
  return {
    audience: options.audience,
    keys,
    limits: resolveLimits(options.limits),
    platform,
    dev: options.dev ?? false,
    log,
    get draining() {
      return draining
    },
    overloaded: overload.overloaded,
    maxRoundMs: options.maxRoundMs ?? Number.POSITIVE_INFINITY,
    continuation: resolveContinuation(options, platform, log),
    tasks: createTaskHost(options, log),
    leaseMs: options.tasks?.leaseMs ?? LEASE_MS,
    store: options.store,
    drain() {
      draining = true
    },
    close() {
      keys.close()
      overload.close()
    },
  }
}
