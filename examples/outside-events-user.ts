import { createServer, type ServerOptions, type ToolDefinition } from 'rondo'
import { z } from 'zod'

/** A page of the web application, opened by the user, tells the call that the account is connected, and as whom. */
export function accounts(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'accounts', version: '1.0.0', ...options })
  const definition: ToolDefinition = {
    task: 'always',
    accept: {
      connected: ({ subject }: { subject: string }, { principal }) =>
        subject === principal?.subject || 'Log in as the user who started the call.',
    },
  }
  server.tool('connect', definition, async (_args, ctx) => {
    const connected = await ctx.hook('connected', {
      schema: z.object({ subject: z.string() }),
      about: { app: ctx.client.name },
    })
    const url = `https://app.example/connect?hook=${connected.id}`
    await ctx.visit('page', { message: 'Connect your account', url })
    await connected.received()
    return 'Your account is connected.'
  })
  return server
}
