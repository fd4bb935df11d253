#!/usr/bin/env node

/** The `rondo` command is in the package `@rondo/cli`; this runs it where that is installed. */

try {
  await import('@rondo/cli/bin')
} catch (error) {
  if (error?.code !== 'ERR_MODULE_NOT_FOUND' || !String(error.message).includes("'@rondo/cli'")) throw error
  console.error('The rondo command is not installed here. Install it with: npm install --save-dev @rondo/cli')
  process.exitCode = 1
}
