/** `rondo abandon`: gives a pending call up. The server holds nothing for it and is not told. */

import { JSON_OPTION, openStore } from './call-session.ts'
import type { Command } from './command.ts'
import { usageError } from './command-error.ts'
import { printJson, tell } from './io.ts'
import { SEAL_OPTIONS } from './seal-key.ts'

export const abandonCommand: Command = {
  name: 'abandon',
  usage: '<id> [id …]',
  summary: 'gives pending calls up',
  options: { ...JSON_OPTION, ...SEAL_OPTIONS },
  async run(invocation) {
    const { io, words, options } = invocation
    if (words.length === 0)
      throw usageError('Name the pending calls by their ids. "rondo pending" lists them')
    const store = openStore(invocation)
    const ids = words.map((word) => store.find(word))
    for (const id of ids) {
      const release = store.claim(id)
      store.remove(id)
      release()
    }
    if (options.flag('json')) printJson(io, { abandoned: ids })
    else tell(io, `Given up: ${ids.join(', ')}`)
    return 'done'
  },
}
