import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

/** Long work in steps: a busy instance hands the call back between two of them, with the results so far. */
export function indexer(work: (shard: number) => Promise<number>, options?: Partial<ServerOptions>) {
  const server = createServer({
    name: 'indexer',
    version: '1.0.0',
    shed: { eventLoopDelayMs: 200 },
    maxRoundMs: 20_000,
    ...options,
  })
  server.tool('index', { input: z.object({ shards: z.int().max(50) }) }, async ({ shards }, ctx) => {
    let documents = 0
    for (let shard = 0; shard < shards; shard++) {
      documents += await ctx.step(`shard:${shard}`, () => work(shard))
      ctx.progress(shard + 1, shards)
    }
    return `Indexed ${documents} documents.`
  })
  return server
}

/** For `npx rondo console examples/07-load-shedding.ts`. */
export default (options?: Partial<ServerOptions>) => indexer(async (shard) => 100 * shard, options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await indexer(async (shard) => 100 * shard).listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} index shards=10`)
}
