/**
 * A client process that the chaos tests kill. Places one order and writes the call to a file whenever it changes; started
 * again with the same file, it continues from there. Reports its position to its parent without waiting for a reply, so
 * that a kill can hit any point.
 *
 * node order-caller.js URL FILE ORDER
 */

import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { connect, parsePending } from '../../packages/rondo/dist/client.js'

const [url, file, order] = process.argv.slice(2)

/** Writes the file completely or not at all. */
function write(path, text) {
  writeFileSync(`${path}.new`, text)
  renameSync(`${path}.new`, path)
}

const answers = {
  address: { action: 'accept', content: { value: 'Ulm' } },
  sure: { action: 'accept', content: { confirm: true } },
}

const client = await connect(url, {
  maxRounds: 64,
  answers: {
    elicitation: {
      form: (_params, { key }) => {
        process.send?.(`asked ${key}`)
        return answers[key]
      },
    },
  },
})
const onPending = (pending) => {
  write(file, JSON.stringify(pending))
  process.send?.(`saved round ${pending.round}`)
}
process.send?.('connected')
const result = existsSync(file)
  ? await client.finish(parsePending(readFileSync(file, 'utf8')), { onPending })
  : await client.callTool('order', { order: Number(order) }, { onPending })
process.send?.('done')
write(`${file}.result`, result.content[0].text)
process.send?.('written')
await client.close()
process.disconnect?.()
