/**
 * Writes the code of `examples/` into the marked blocks of README.md and docs/guide: run it after changing an example.
 */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'

const pages = ['README.md', ...readdirSync('docs/guide').map((name) => `docs/guide/${name}`)]
const MARKED = /<!-- from (\S+?)(?:#(\S+))? -->\n```(\w+)\n[\s\S]*?```/g

function code(path, region) {
  const text = readFileSync(path, 'utf8')
  if (region === undefined) return text.trimEnd()
  const part = new RegExp(`^[ \\t]*// #region ${region}\n([\\s\\S]*?)^[ \\t]*// #endregion`, 'm').exec(text)
  if (!part) throw new Error(`${path} has no region ${region}`)
  return dedent(part[1].trimEnd())
}

function dedent(text) {
  const lines = text.split('\n')
  const depths = lines.filter((line) => line.trim() !== '').map((line) => line.search(/\S/))
  return lines.map((line) => line.slice(Math.min(...depths))).join('\n')
}

for (const page of pages) {
  const before = readFileSync(page, 'utf8')
  const after = before.replace(MARKED, (_, path, region, language) => {
    const mark = region === undefined ? path : `${path}#${region}`
    return `<!-- from ${mark} -->\n\`\`\`${language}\n${code(path, region)}\n\`\`\``
  })
  if (after !== before) writeFileSync(page, after)
}
