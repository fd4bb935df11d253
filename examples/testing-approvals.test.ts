import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { deployer } from './approve-deploy.ts'

const principal = { issuer: 'https://login.example', subject: 'erin' }
const nobody = () => undefined

it('the tool deploys what Ann has approved', async () => {
  const bench = createBench((options) => deployer(nobody, options))
  const task = bench.task('deploy', { version: '1.2.3' }, { principal })
  await task.next()
  await expect(task.approve('deploy', { by: 'erin' })).rejects.toThrow('not a member of release-managers')
  const done = await task.approve('deploy', { by: 'ann' })
  expect(done).toMatchObject({ text: expect.stringContaining('Deployed 1.2.3, approved by Ann.') })
})

it('the tool deploys nothing that Ann has denied', async () => {
  const bench = createBench((options) => deployer(nobody, options))
  const task = bench.task('deploy', { version: '1.2.3' }, { principal })
  await task.next()
  const done = await task.deny('deploy', { by: 'ann', note: 'Not on a Friday.' })
  expect(done).toMatchObject({ result: { isError: true }, text: expect.stringContaining('was not executed') })
})
