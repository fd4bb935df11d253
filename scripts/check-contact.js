/**
 * Refuses to publish the package in the current folder while `repository` and `bugs` of its package.json are missing or
 * placeholders: names below `.example` (RFC 2606) reach nobody, and SECURITY.md sends whoever finds a vulnerability there.
 */

import { readFileSync } from 'node:fs'

const { repository, bugs } = JSON.parse(readFileSync('package.json', 'utf8'))
const addresses = [repository?.url, bugs?.url, bugs?.email]
if (addresses.includes(undefined)) {
  console.error(
    'package.json lacks repository.url, bugs.url or bugs.email: run this in the folder of a package',
  )
  process.exit(1)
}
const placeholders = addresses.filter((one) => /\.example(?:[/:]|$)/.test(one))
if (placeholders.length > 0) {
  console.error(`package.json has placeholders, which reach nobody: ${placeholders.join(', ')}`)
  process.exit(1)
}
