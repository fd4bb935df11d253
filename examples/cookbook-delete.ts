import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

export interface Disk {
  count(folder: string): Promise<number>
  remove(folder: string, options: { idempotencyKey: string }): Promise<void>
}

/** Deletes a folder after an explicit yes to exactly what is deleted. */
export function cleaner(disk: Disk, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'cleaner', version: '1.0.0', ...options })
  const input = z.object({ folder: z.string() })
  server.tool('delete_folder', { input }, async ({ folder }, ctx) => {
    const files = await ctx.step('count', () => disk.count(folder))
    if (!(await ctx.confirm('delete', `Delete ${folder} with its ${files} files? This cannot be undone.`)))
      return 'Nothing was deleted.'
    await ctx.effect('remove', ({ key }) => disk.remove(folder, { idempotencyKey: key }))
    return `Deleted ${folder} with ${files} files.`
  })
  return server
}
