import { createServer, EventExpired, type ServerOptions } from 'rondo'
import { z } from 'zod'

const decisions = z.object({ restart: z.boolean() })

export interface Operations {
  page(message: { text: string; hook: string; idempotencyKey: string }): Promise<void>
  restart(service: string, options: { idempotencyKey: string }): Promise<void>
}

/** Asks the user first, then the engineer on call, and does nothing if neither of them answers. */
export function watchdog(operations: Operations, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'watchdog', version: '1.0.0', ...options })
  const input = z.object({ service: z.string() })
  server.tool('recover', { input, task: 'always' }, async ({ service }, ctx) => {
    const text = `Restart ${service}?`
    const asked = await ctx.elicit('user', { message: text, schema: decisions, within: '15 min' })
    if (asked.action === 'decline' || asked.action === 'cancel') return 'Nothing was restarted.'
    const decision = asked.action === 'accept' ? asked.content : await escalate()
    if (!decision?.restart) return decision ? 'Nothing was restarted.' : 'Nobody decided in time.'
    await ctx.effect('restart', ({ key }) => operations.restart(service, { idempotencyKey: key }))
    return `Restarted ${service}.`

    async function escalate() {
      const onCall = await ctx.hook('on call', { schema: decisions, within: '1 h' })
      await ctx.effect('page', ({ key }) => operations.page({ text, hook: onCall.id, idempotencyKey: key }))
      try {
        return await onCall.received()
      } catch (error) {
        if (error instanceof EventExpired) return undefined
        throw error
      }
    }
  })
  return server
}
