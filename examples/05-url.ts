import { createServer, type ServerOptions, ToolError } from 'rondo'

/** What the web application behind the link knows: who has connected an account. */
export const connected = new Set<string>()

/** URL mode: the user signs in on a page of yours. Accepting means "I will open it", not "it is done". */
export function calendar(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'calendar', version: '1.0.0', ...options })
  server.tool('next_meeting', { description: 'Tell the next meeting' }, async (_args, ctx) => {
    const user = ctx.principal?.subject ?? 'anonymous'
    if (!(await ctx.step('already connected', () => connected.has(user)))) {
      await ctx.visit('connect', {
        message: 'Connect your calendar account to go on.',
        url: `https://calendar.example/connect/${ctx.uuid('handle')}`,
      })
      if (!(await ctx.step('connected now', () => connected.has(user)))) {
        throw new ToolError('The calendar account is not connected yet. Finish signing in, then ask again.')
      }
    }
    return 'Your next meeting is at ten.'
  })
  return server
}
