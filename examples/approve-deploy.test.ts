import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { deployer } from './approve-deploy.ts'

const ISSUER = 'https://login.example'
const PAGES = 'http://127.0.0.1:3000/approvals'

it('L1 approve-deploy deploys once Ann has approved on the page beside the MCP endpoint', async () => {
  const login = () => ({ kind: 'login', issuer: ISSUER, subject: 'ann', name: 'Ann' }) as const
  const bench = createBench((options) => deployer(login, options))
  const task = bench.task('deploy', { version: '1.2.3' }, { principal: { issuer: ISSUER, subject: 'erin' } })
  expect(await task.next()).toMatchObject({ kind: 'waiting' })
  const open = async (url: string, init?: RequestInit) =>
    (await bench.server.fetch(new Request(url, init))).text()
  const [, path = ''] = /href="\/approvals(\/r\/[\w-]+)"/.exec(await open(PAGES)) ?? []
  const page = await open(`${PAGES}${path}`)
  expect(page).toContain('Deploy 1.2.3 to production?')
  const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(page) ?? []
  await open(`${PAGES}${path}`, { method: 'POST', body: new URLSearchParams({ csrf, decision: 'approve' }) })
  expect(await task.run()).toMatchObject({
    text: 'Deployed 1.2.3, approved by Ann.\nApproved, and executed.',
  })
})
