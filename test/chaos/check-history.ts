/** The command `npm run check-history -- FILE…`: judges histories of chaos runs. */

import { readFileSync } from 'node:fs'
import { checkHistory, readHistory } from './history.ts'

const files = process.argv.slice(2)
if (files.length === 0) {
  console.error('Usage: npm run check-history -- FILE…')
  process.exitCode = 2
}
for (const file of files) {
  const { problems, figures } = checkHistory(readHistory(readFileSync(file, 'utf8')))
  console.log(`${file}: ${JSON.stringify(figures)}`)
  for (const problem of problems) console.log(`  ${problem}`)
  console.log(problems.length === 0 ? '  no problem' : `  ${problems.length} problems`)
  if (problems.length > 0) process.exitCode = 1
}
