import { createServer, type ServerOptions, ToolError } from 'rondo'
import { z } from 'zod'

export interface WorkItem {
  state: string
  resolution?: string
  duplicateOf?: number
}

const resolutions = z.object({
  resolution: z
    .enum(['Fixed', "Won't Fix", 'Duplicate', 'By Design'])
    .describe('Resolution type for this bug'),
})
const original = z.object({ duplicateOfId: z.number().describe('Work item ID of the original bug') })

/** Rules of a tracker: "Resolved" needs a resolution, "Duplicate" needs the original. */
export function workItems(items: Map<number, WorkItem>, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'work-items', version: '1.0.0', ...options })
  server.tool(
    'update_work_item',
    {
      description: 'Change fields of a work item',
      input: z.object({ workItemId: z.int(), fields: z.record(z.string(), z.string()) }),
    },
    async ({ workItemId, fields }, ctx) => {
      const state = fields['System.State']
      if (state === undefined) throw new ToolError('Only System.State can be changed here.')
      const change: WorkItem = { state }
      if (state === 'Resolved') {
        const { resolution } = await ctx.ask('resolution', {
          message: `Resolving Bug #${workItemId} requires a resolution. How was this bug resolved?`,
          schema: resolutions,
        })
        change.resolution = resolution
        if (resolution === 'Duplicate') {
          const { duplicateOfId } = await ctx.ask('duplicate_of', {
            message: 'Since this is a duplicate, which work item is the original?',
            schema: original,
          })
          change.duplicateOf = duplicateOfId
        }
      }
      await ctx.effect('update', () => void items.set(workItemId, change))
      return summary(workItemId, change)
    },
  )
  return server
}

function summary(id: number, { state, resolution, duplicateOf }: WorkItem): string {
  if (duplicateOf !== undefined) {
    return `Bug #${id} resolved as Duplicate of Bug #${duplicateOf}. State set to ${state} and duplicate link created.`
  }
  return resolution === undefined
    ? `Bug #${id}: state set to ${state}.`
    : `Bug #${id} resolved as ${resolution}. State set to ${state}.`
}

/** For `npx rondo console examples/08-custom-rules.ts`. */
export default (options?: Partial<ServerOptions>) => workItems(new Map(), options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await workItems(new Map()).listen()
  const call = `update_work_item workItemId=7 fields:='{"System.State":"Resolved"}'`
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} ${call}`)
}
