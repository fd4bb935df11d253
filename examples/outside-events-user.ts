import { createServer, type ServerOptions, ToolError } from 'rondo'
import { z } from 'zod'

/** A page of the web application, opened by the user, tells the call that the account is connected, and as whom. */
export function accounts(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'accounts', version: '1.0.0', ...options })
  server.tool('connect', { task: 'always' }, async (_args, ctx) => {
    const connected = await ctx.hook('connected', { schema: z.object({ subject: z.string() }) })
    const url = `https://app.example/connect?hook=${connected.id}`
    await ctx.visit('page', { message: 'Connect your account', url })
    const { subject } = await connected.received()
    if (subject !== ctx.principal?.subject) throw new ToolError('Somebody else opened the page.')
    return 'Your account is connected.'
  })
  return server
}
