/** Tells when a source file beside the given one changed, a moment after the last change. */

import { watch } from 'node:fs'
import { dirname, sep } from 'node:path'

const SOURCES = /\.(?:[cm]?[jt]s|[jt]sx|json)$/
const SETTLE_MS = 120

export function watchSources(path: string, changed: () => void): () => void {
  let timer: NodeJS.Timeout | undefined
  const watcher = watch(dirname(path), { recursive: true }, (_event, name) => {
    if (name === null || !isSource(name)) return
    clearTimeout(timer)
    timer = setTimeout(changed, SETTLE_MS)
  })
  watcher.on('error', () => {})
  return () => {
    clearTimeout(timer)
    watcher.close()
  }
}

export function isSource(name: string): boolean {
  const parts = name.split(sep)
  return SOURCES.test(name) && !parts.some((part) => part === 'node_modules' || part.startsWith('.'))
}
