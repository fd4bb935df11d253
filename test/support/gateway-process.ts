/** One instance of a gateway, as a process of its own. Prints its URL as the first line and serves until it is killed. */

import { createApprovals } from '@rondo/approvals'
import { createGateway } from '@rondo/gateway'
import { createSqliteStore } from 'rondo/sqlite'

const { GATEWAY_UPSTREAM: url = '', GATEWAY_REVISION, GATEWAY_SQLITE: file, GATEWAY_APPROVE } = process.env

const gateway = createGateway({
  // The server behind is told the name, and so knows which instance calls.
  name: process.env.GATEWAY_NAME ?? 'gateway',
  audience: 'gateway',
  version: '1.0.0',
  log: 'off',
  ...(file && { store: createSqliteStore({ file }) }),
  // Short, because tests wait for it, but not for a process that a busy machine stops for a moment.
  tasks: { leaseMs: 2_000, pollMs: 50 },
  upstreams: { up: { url, ...(GATEWAY_REVISION === '2025-11-25' && { revision: '2025-11-25' }) } },
  ...(GATEWAY_APPROVE && {
    authenticate: () => ({ issuer: 'https://login.example', subject: 'erin' }),
    decide: () => 'approve',
    approvals: { from: 'managers' },
  }),
})
if (GATEWAY_APPROVE) {
  gateway.use(
    createApprovals({
      url: GATEWAY_APPROVE,
      login: () => ({ kind: 'login', issuer: 'https://login.example', subject: 'ann' }),
      groups: () => ['ann'],
      pollMs: 50,
    }),
  )
}
const listening = await gateway.listen({ port: 0 })
console.log(listening.url)
