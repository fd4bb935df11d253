/**
 * Refuses to publish while `repository` and `bugs` of package.json are placeholders: names below `.example` (RFC 2606) reach
 * nobody, and SECURITY.md sends whoever finds a vulnerability there.
 */

import { readFileSync } from 'node:fs'

const { repository, bugs } = JSON.parse(readFileSync('package.json', 'utf8'))
const placeholders = [repository.url, bugs.url, bugs.email].filter((one) => /\.example(?:[/:]|$)/.test(one))
if (placeholders.length > 0) {
  console.error(`package.json has placeholders, which reach nobody: ${placeholders.join(', ')}`)
  process.exit(1)
}
