/**
 * One subscription over HTTP: a stream that stays open. A client that does not read it is cut off; it listens again
 * and looks at the lists anew.
 */

import { RondoError } from '../errors.ts'
import type { ListenCall } from '../protocol/call.ts'
import { refusal } from './http-answer.ts'
import { openStream, type StreamOptions } from './http-line.ts'
import type { Outlet } from './outlet.ts'
import { toEvent } from './sse.ts'
import type { Subscriber, Subscriptions } from './subscription.ts'

export function serveListen(
  call: ListenCall,
  subscriber: Subscriber,
  outlet: Outlet,
  subscriptions: Subscriptions,
  stream: StreamOptions,
): void {
  let stopKeepAlive: (() => void) | undefined
  try {
    const stop = subscriptions.open(call, subscriber, {
      send(json) {
        stopKeepAlive ??= openStream(outlet, stream)
        if (outlet.backlog > stream.maxBacklog) outlet.drop()
        else outlet.write(toEvent(json))
      },
      end() {
        stopKeepAlive?.()
        outlet.end()
      },
    })
    outlet.onGone(stop)
  } catch (error) {
    if (!(error instanceof RondoError)) throw error
    outlet.send(refusal(error, call.id))
  }
}
