/** `call.js CLIENT URL TOOL`: calls a tool with one of the clients, and prints the result or the error as one line of JSON. */

import { CLIENTS } from './clients.js'

const [name, url, tool] = process.argv.slice(2)
let outcome
try {
  const { call, close } = await CLIENTS[name].open(url)
  try {
    outcome = { result: await call(tool, { id: 7 }) }
  } finally {
    await close()
  }
} catch (error) {
  outcome = { error: String(error?.message ?? error) }
}
process.stdout.write(`${JSON.stringify(outcome)}\n`, () => process.exit())
