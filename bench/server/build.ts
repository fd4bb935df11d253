/** The build of Rondo that a server of the bench runs: this one, or the one in another checkout. */

import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { BUILD_VARIABLE } from './start.ts'

const directory = process.env[BUILD_VARIABLE]

const load = (): Promise<typeof import('rondo')> =>
  directory === undefined
    ? import('rondo')
    : import(/* @vite-ignore */ pathToFileURL(resolve(directory, 'packages/rondo/dist/index.js')).href)

export const { createServer } = await load()
