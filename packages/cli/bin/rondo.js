#!/usr/bin/env node

/** The `rondo` command: the built one in a package that is installed; in a checkout its sources, which need no build. */

import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const source = new URL('../src/cli.ts', import.meta.url)

if (existsSync(source)) {
  // Resolves `rondo` and `@rondo/*` to their sources, here and in the processes that the command starts.
  process.env.TSX_TSCONFIG_PATH = fileURLToPath(new URL('../../../tsconfig.json', import.meta.url))
  const { register } = await import('tsx/esm/api')
  register()
  await import(source.href)
} else await import('../dist/cli.js')
