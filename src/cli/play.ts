/**
 * `rondo play`: serves a file that exports a server, and serves it anew whenever a file beside it changes. Open calls
 * survive a reload: the keys stay the same. A file that is broken is reported, and tried again after the next change.
 */

import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { JSON_OPTION } from './call-session.ts'
import type { Command } from './command.ts'
import { usageError } from './command-error.ts'
import { tell } from './io.ts'
import { serverEnv } from './local-keys.ts'
import { createPlayer } from './player.ts'
import { scriptArgs } from './script-command.ts'
import { watchSources } from './watch-sources.ts'

export const playCommand: Command = {
  name: 'play',
  usage: '<file>',
  summary: 'serves a file that exports a server, and reloads it on change',
  options: {
    port: { type: 'string', value: 'N', help: 'the port (3000); 0 takes a free one' },
    host: { type: 'string', value: 'ADDRESS', help: 'the address to listen on (127.0.0.1)' },
    'no-watch': { type: 'boolean', help: 'does not reload' },
    ...JSON_OPTION,
  },
  async run({ io, words, options }) {
    const [file, ...others] = words
    if (file === undefined || others.length > 0) throw usageError('Name one file that exports a server')
    const path = resolve(io.cwd, file)
    if (!isFile(path)) throw usageError(`There is no file ${path}`)
    const player = createPlayer({
      ...{ io, path, json: options.flag('json') },
      host: options.text('host') ?? '127.0.0.1',
      port: options.number('port') ?? 3000,
      command: (entrance) => scriptArgs(path, entrance),
      env: serverEnv(io),
    })
    const stopWatching = options.flag('no-watch') ? () => {} : watchSources(path, () => player.reload())
    const stopped = new Promise<void>((done) => {
      io.signal.addEventListener('abort', () => done(), { once: true })
    })
    const failed = await Promise.race([player.start(), stopped.then(() => false)])
    if (failed && options.flag('no-watch')) return 'failed'
    await stopped
    stopWatching()
    await player.stop()
    tell(io, 'Stopped.')
    return 'done'
  },
}

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile()
  } catch {
    return false
  }
}
