/** Several servers of ours that share their keys, and clients of earlier eras that send each request to the next of them. */

import { generateKey, type ServerOptions } from 'rondo'
import { connectOlder, type OlderClient, type OlderClientOptions } from './older-client.ts'
import { type OlderServer, startOlder } from './older-server.ts'

export interface OlderFleet {
  readonly instances: readonly OlderServer[]
  /** A client whose requests go to the instances in turn. */
  connect(options?: OlderClientOptions): Promise<OlderClient>
  /** The next request goes to this instance, and the one after it to the next. */
  route(index: number): void
}

const FORM = { elicitation: {} }

/** `optionsOf` returns the options of one instance, such as its handle of a shared store. */
export async function startFleet(
  count: number,
  optionsOf: (index: number) => Partial<ServerOptions> = () => ({}),
): Promise<OlderFleet> {
  const keys = generateKey()
  const instances: OlderServer[] = []
  for (let index = 0; index < count; index++) instances.push(await startOlder({ keys, ...optionsOf(index) }))
  let next = 0
  const send = (request: Request): Promise<Response> => {
    const url = instances[next++ % count]?.url ?? ''
    return fetch(new Request(url, request))
  }
  return {
    instances,
    connect: (options) => connectOlder(instances[0]?.url ?? '', { capabilities: FORM, ...options }, send),
    route(index) {
      next = index
    },
  }
}
