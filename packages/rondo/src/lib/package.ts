/** Packages that are loaded when they are needed, and looked for before. */

/**
 * True if the package is not installed. In a program's bundle nothing can be said: there this code is outside of its own package,
 * and the other package may be in the bundle too.
 */
export function isMissing(name: string): boolean {
  const { place } = find('rondo/package.json')
  if (place === undefined || !import.meta.url.startsWith(new URL('.', place).href)) return false
  return find(name).problem === 'ERR_MODULE_NOT_FOUND'
}

function find(name: string): { readonly place?: string; readonly problem?: string } {
  try {
    // Not every runtime and bundler has this function.
    return { place: import.meta.resolve?.(name) }
  } catch (error) {
    return { problem: (error as NodeJS.ErrnoException).code }
  }
}
