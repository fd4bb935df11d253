import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

const login = z.object({ name: z.string() })

/** The old release asks for two accounts … */
export function releaseOne(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'accounts', version: '1.0.0', ...options })
  server.tool('link_accounts', { version: '1' }, async (_args, ctx) => {
    const [github, google] = await Promise.all([
      ctx.ask('github_login', { message: 'Your GitHub user name?', schema: login }),
      ctx.ask('google_login', { message: 'Your Google account?', schema: login }),
    ])
    return `Linked ${github.name} and ${google.name}.`
  })
  return server
}

/** … the new one asks for a different second account. A call from the old release continues here and asks only for that. */
export function releaseTwo(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'accounts', version: '2.0.0', ...options })
  server.tool('link_accounts', { version: '2' }, async (_args, ctx) => {
    const [github, microsoft] = await Promise.all([
      ctx.ask('github_login', { message: 'Your GitHub user name?', schema: login }),
      ctx.ask('microsoft_login', { message: 'Your Microsoft account?', schema: login }),
    ])
    return `Linked ${github.name} and ${microsoft.name}.`
  })
  return server
}

/** For `npx rondo console examples/06-rolling-upgrade.ts`. */
export default (options?: Partial<ServerOptions>) => releaseOne(options)

if (process.argv[1] === import.meta.filename) {
  const release = process.argv[2] === 'two' ? releaseTwo : releaseOne
  const { url } = await release().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} link_accounts --detach`)
  console.log('Then start this file with the word "two", and answer. RONDO_KEYS must be the same both times.')
}
