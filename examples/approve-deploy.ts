import { createApprovals, type LoginFunction } from '@rondo/approvals'
import { createServer, type ServerOptions } from 'rondo'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'

// #region tool
/** Deploys a version once a release manager other than the caller has approved exactly that. */
export function deployer(login: LoginFunction, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'deployer', version: '1.0.0', ...options })
  const input = z.object({ version: z.string() })
  server.tool('deploy', { input, task: 'always' }, async ({ version }, ctx) => {
    const approval = await ctx.approve('deploy', {
      from: 'release-managers',
      message: `Deploy ${version} to production?`,
      details: { version, target: 'production' },
      within: '2 days',
    })
    await ctx.effect('deploy', async ({ key }) => `deployed ${version} under ${key}`)
    return `Deployed ${version}, approved by ${approval.by[0].name}.`
  })
  server.use(
    createApprovals({
      url: process.env.APPROVALS_URL ?? 'http://127.0.0.1:3000/approvals',
      login,
      groups: (name) => (name === 'release-managers' ? [{ id: 'ann', name: 'Ann' }] : []),
    }),
  )
  return server
}
// #endregion

/** For a try on one machine: whoever opens the page is Ann, and whoever calls is Erin. */
export default (options?: Partial<ServerOptions>) =>
  deployer(() => ({ issuer: 'this machine', subject: 'ann', name: 'Ann' }), {
    store: createSqliteStore({ file: 'deployer.db' }),
    authenticate: () => ({ issuer: 'this machine', subject: 'erin' }),
    ...options,
  })
