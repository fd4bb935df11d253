/**
 * Calls a function when the running code has nothing left to do at this moment: every promise reaction that could run
 * has run. A macrotask does that; microtasks would run in between the author's own.
 */

export type Idle = (fn: () => void) => void

function channelIdle(): Idle {
  const { port1, port2 } = new MessageChannel()
  const queue: (() => void)[] = []
  port1.onmessage = () => queue.shift()?.()
  return (fn) => {
    queue.push(fn)
    port2.postMessage(0)
  }
}

export const idle: Idle =
  typeof globalThis.setImmediate === 'function' ? (fn) => void globalThis.setImmediate(fn) : channelIdle()
