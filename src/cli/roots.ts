/** Answers `roots/list` with the folders of `--root`, without asking anybody. Without one, nothing is answered. */

import { basename, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { RoundPolicy } from '../client/round-policy.ts'
import type { Root } from '../protocol/wire.ts'
import type { Io } from './io.ts'

export function rootsOf({ cwd }: Io, folders: readonly string[]): Root[] {
  return folders.map((folder) => {
    const path = resolve(cwd, folder)
    return { uri: pathToFileURL(path).href, name: basename(path) }
  })
}

export function answerRoots(io: Io, folders: readonly string[]): RoundPolicy {
  const roots = rootsOf(io, folders)
  return ({ questions }) => {
    const keys = Object.keys(questions).filter((key) => questions[key]?.method === 'roots/list')
    if (roots.length === 0 || keys.length === 0) return undefined
    return { kind: 'rewrite', answers: Object.fromEntries(keys.map((key) => [key, { roots }])) }
  }
}
