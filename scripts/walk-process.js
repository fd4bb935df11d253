/**
 * A process that `npm run walk` measures, from compiled sources at the URL in the first argument: a server (`server`, and the
 * URL of its program, which prints the address that it serves), or a client (`client`, and the address to call). It records
 * between the messages `start` and `take`.
 */

import { Session } from 'node:inspector/promises'

const [home = '', role = 'server', url = ''] = process.argv.slice(2)

/** Files in the order of entry; a file is repeated only after another one. */
const entered = []
const session = new Session()
session.connect()
await session.post('Profiler.enable')

let call = () => Promise.reject(new Error('Only a client calls.'))

process.on('message', async ({ kind, id }) => {
  if (kind === 'call') {
    process.send(await call(id))
  } else if (kind === 'start') {
    // Work that the last call left to do must not be counted.
    for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve))
    globalThis.__enter = (name) => {
      if (entered.at(-1) !== name) entered.push(name)
    }
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
    // The first report covers what ran before: taking it resets the counters.
    await session.post('Profiler.takePreciseCoverage')
    process.send('started')
  } else {
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const instrumented = entered.length > 0
    process.send(instrumented ? entered : result.filter((script) => script.url.startsWith(home)))
  }
})

if (role === 'client') {
  const { connect } = await import(`${home}client.js`)
  const client = await connect(url, {
    answers: { elicitation: () => ({ action: 'accept', content: { resolution: 'Fixed' } }) },
  })
  call = (id) => client.callTool('resolve_bug', { id })
  process.send('connected')
} else {
  console.log = (line) => process.send({ url: line.replace('Serving ', '') })
  await import(url)
}
