/** `createServer({ continuation })` made into what carriers use. */

import type { Continuation, ContinuationMode } from '../carry/continuation.ts'
import { createContinuation } from '../carry/create-continuation.ts'
import type { FlowPlatform } from '../carry/flow-host.ts'
import { misuse } from '../errors.ts'
import type { Log } from './log.ts'
import type { ServerOptions } from './options.ts'

const MODES: readonly ContinuationMode[] = ['stored', 'dual', 'sealed-first', 'sealed']

/** Nothing for `sealed`: that is what every carrier does by itself. */
export function resolveContinuation(
  { continuation: mode = 'sealed', store }: Pick<ServerOptions, 'continuation' | 'store'>,
  { randomId }: FlowPlatform,
  log: Log,
): Continuation | undefined {
  if (!MODES.includes(mode)) {
    throw misuse(`continuation is one of ${MODES.join(', ')}; got ${JSON.stringify(mode)}.`)
  }
  if (mode === 'sealed') return undefined
  if (!store) throw misuse(`continuation: '${mode}' needs a store: createServer({ store, … })`)
  return createContinuation({
    mode,
    blobs: store.blobs,
    randomId,
    tell: (finding) => log({ event: 'continuation', ...finding }),
  })
}
