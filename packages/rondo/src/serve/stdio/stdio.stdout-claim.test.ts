import { Console } from 'node:console'
import { PassThrough } from 'node:stream'
import { expect, it } from 'vitest'
import { claimStdout } from './stdio.ts'

it('the claim redirects what others write to standard error until it is released', () => {
  const stdout = new PassThrough({ encoding: 'utf8' })
  const stderr = new PassThrough({ encoding: 'utf8' })
  const console = new Console(stdout, stderr)
  const claim = claimStdout(stdout, stderr)
  console.log('stray')
  stdout.write('stray too\n')
  claim.write('message\n')
  expect(stdout.read()).toBe('message\n')
  expect(stderr.read()).toBe('stray\nstray too\n')
  claim.release()
  console.log('free')
  expect(stdout.read()).toBe('free\n')
})
