import { createServer, type ServerOptions, ToolError } from 'rondo'

/** The data of the web application behind the links: who owns each link, and who has connected an account. */
export function createConnections() {
  const links = new Map<string, string>()
  const connected = new Set<string>()
  return {
    offer: (link: string, user: string) => void links.set(link, user),
    has: (user: string) => connected.has(user),
    /** The page checks who is signed in. A link works once, and only for the user it was created for. */
    open(link: string, signedIn: string): boolean {
      if (links.get(link) !== signedIn) return false
      links.delete(link)
      connected.add(signedIn)
      return true
    },
  }
}

/** URL mode: the user signs in on a page of yours. Accepting means "I will open it", not "I have signed in". */
export function calendar(connections = createConnections(), options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'calendar', version: '1.0.0', ...options })
  server.tool('next_meeting', { description: 'Show the next meeting' }, async (_args, ctx) => {
    const user = ctx.principal?.subject ?? 'anonymous'
    if (!(await ctx.step('already connected', () => connections.has(user)))) {
      const link = ctx.uuid('link')
      await ctx.step('offer', () => connections.offer(link, user))
      await ctx.visit('connect', {
        message: 'Connect your calendar account to continue.',
        url: `https://calendar.example/connect/${link}`,
      })
      if (!(await ctx.step('connected now', () => connections.has(user)))) {
        throw new ToolError('The calendar account is not connected yet. Finish signing in, then ask again.')
      }
    }
    return 'Your next meeting is at ten.'
  })
  return server
}

/** For `npx rondo console examples/05-url.ts`. */
export default (options?: Partial<ServerOptions>) => calendar(createConnections(), options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await calendar().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} next_meeting`)
}
