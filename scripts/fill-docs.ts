/**
 * Writes the code of `examples/` into the marked blocks of every page, and the generated parts of the reference: run it after
 * changing an example, an option, an error, a command, or the doc comment of one.
 *
 * A block marked `<!-- from examples/x.ts -->` contains that file, one marked `<!-- from examples/x.ts#name -->` the lines
 * between `// #region name` and `// #endregion`.
 */

import { writeFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { readRepository } from '../test/support/repository.ts'
import { fillReference } from './reference.ts'

const MARKED = /<!-- from (\S+?)(?:#(\S+))? -->\n```(\w+)\n[\s\S]*?```/g

/** The code that a mark names, or undefined if there is no such file or region. */
export function markedCode(
  files: ReadonlyMap<string, string>,
  path: string,
  name?: string,
): string | undefined {
  const text = files.get(path)
  if (text === undefined || name === undefined) return text?.trimEnd()
  const region = new RegExp(`^[ \\t]*// #region ${name}\\n([\\s\\S]*?)^[ \\t]*// #endregion`, 'm').exec(text)
  return region?.[1] === undefined ? undefined : dedent(region[1].trimEnd())
}

function dedent(text: string): string {
  const lines = text.split('\n')
  const depths = lines.filter((line) => line.trim() !== '').map((line) => line.search(/\S/))
  return lines.map((line) => line.slice(Math.min(...depths))).join('\n')
}

function fill(): void {
  const files = readRepository()
  for (const [page, before] of files) {
    if (!page.endsWith('.md')) continue
    const after = before.replace(MARKED, (_, path: string, name: string | undefined, language: string) => {
      const mark = name === undefined ? path : `${path}#${name}`
      const code = markedCode(files, path, name)
      if (code === undefined) throw new Error(`${page} quotes ${mark}, which does not exist`)
      return `<!-- from ${mark} -->\n\`\`\`${language}\n${code}\n\`\`\``
    })
    if (after !== before) writeFileSync(page, after)
  }
  for (const [page, text] of fillReference(files)) if (text !== files.get(page)) writeFileSync(page, text)
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) fill()
