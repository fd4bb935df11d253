/** Runs cases on a real Restate in a process of its own, because the SDK needs a newer Node than the tests. */

import { restateCases } from './cases.ts'
import { startRestate, type TestRestate } from './server.ts'

let restate: TestRestate | undefined
const starting = startRestate().then((started) => {
  restate = started
})
const cases = restateCases(() => {
  if (restate === undefined) throw new Error('Restate has not started')
  return restate
})

async function runCase(index: number): Promise<string | undefined> {
  try {
    await starting
    await cases[index]?.run()
    return undefined
  } catch (error) {
    return error instanceof Error ? (error.stack ?? error.message) : String(error)
  }
}

process.on('message', async (index: number) => {
  const failure = await runCase(index)
  process.send?.({ index, failure })
})
process.on('disconnect', async () => {
  await starting.catch(() => {})
  await restate?.stop()
  process.exit(0)
})
