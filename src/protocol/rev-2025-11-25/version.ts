/** The revisions that this codec speaks. They share one form; what a revision lacks is left out by `encode.ts`. */

/** Newest first. */
export const VERSIONS: readonly string[] = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05']

/** What to speak with a client that wants `requested`: that, or the newest there is. */
export function negotiate(requested: string, served: readonly string[]): string {
  return served.includes(requested) ? requested : (served[0] ?? requested)
}

/** From this revision on a stream may begin with an event that has an id and no message. Draft labels sort after dates. */
export function primesStreams(version: string): boolean {
  return version >= '2025-11-25'
}

/** JSON-RPC batches came with JSON-RPC itself and were taken out in 2025-06-18. */
export function allowsBatches(version: string): boolean {
  return version === '2025-03-26' || version === '2024-11-05'
}
