/** A worker that is killed, or that takes over: `recovery-child.js ADDRESS HANGS`. */

import { openEngine } from './rondo.ts'
import { newTask } from './row.ts'

export type FromWaiter = { readonly kind: 'ready' | 'began' }

const [address = '', hangs = ''] = process.argv.slice(2)
const say = (kind: FromWaiter['kind']): void => void process.send?.({ kind } satisfies FromWaiter)
const { engine } = await openEngine(JSON.parse(address))
await engine.serve(async () => {
  say('began')
  if (hangs === 'true') await new Promise(() => {})
  return { kind: 'complete', result: 'done' }
})
process.on('message', () => void engine.create(newTask()))
process.on('disconnect', () => process.exit())
say('ready')
