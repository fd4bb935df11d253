#!/usr/bin/env node

/** The `rondo` command: the built one in a package that is installed; in a checkout its sources, which need no build. */

import { existsSync } from 'node:fs'

const source = new URL('../src/cli.ts', import.meta.url)

if (existsSync(source)) {
  const { register } = await import('tsx/esm/api')
  register()
  await import(source.href)
} else await import('../dist/cli.js')
