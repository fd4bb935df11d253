import type { ChildProcess } from 'node:child_process'

/** The next message of this kind from a process that the bench started; rejects if the process ends first. */
export function messageOf<M extends { readonly kind: string }>(
  child: ChildProcess,
  kind: M['kind'],
): Promise<M> {
  return new Promise((resolve, reject) => {
    const onExit = (code: number | null): void =>
      reject(new Error(`A process of the bench ended with code ${code}`))
    const onMessage = (message: unknown): void => {
      if ((message as M).kind !== kind) return
      child.off('exit', onExit)
      child.off('message', onMessage)
      resolve(message as M)
    }
    child.once('exit', onExit)
    child.on('message', onMessage)
  })
}
