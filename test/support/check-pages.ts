/**
 * The rules for the form of a page: what it is, for whom, how long, and that no page repeats another.
 *
 * A page begins with `<!-- how-to for operators, at most 900 words -->`. Its words are those that somebody wrote: generated parts
 * and code do not count.
 */

import { handWritten } from '../../scripts/reference.ts'
import { readHeadings } from './markdown.ts'

type Files = ReadonlyMap<string, string>

const HEAD =
  /^<!-- (tutorial|how-to|reference|explanation) for (everyone|authors|operators|hosts|reviewers|contributors), at most ([\d,]+) words -->\n/

/** The pages that users read; decisions are records, and the template's pages belong to projects. */
export function userPages(files: Files): [path: string, text: string][] {
  return [...files].filter(([path]) =>
    /^docs\/(?!decisions\/).*\.md$|^(?:README|SECURITY|VERSIONING|ROADMAP)\.md$/.test(path),
  )
}

/** Every page says its shape, its audience and its budget, and keeps to the budget. */
export function checkBudgets(pages: readonly [path: string, text: string][]): {
  words: number
  problems: string[]
} {
  let words = 0
  const problems = pages.flatMap(([path, text]) => {
    const count = countWords(text)
    words += count
    const [, , , budget] = HEAD.exec(text) ?? []
    if (budget === undefined)
      return [`${path}: begin the page with <!-- how-to for operators, at most ${count} words -->`]
    const limit = Number(budget.replaceAll(',', ''))
    return count > limit ? [`${path}: ${count} words, and its budget is ${limit}`] : []
  })
  return { words, problems }
}

function countWords(text: string): number {
  return plainText(text).match(/\S*[\p{L}\p{N}]\S*/gu)?.length ?? 0
}

/** The words that somebody wrote: no generated parts, code, comments or addresses. */
function plainText(text: string): string {
  return (handWritten(text) ?? text)
    .replace(/^<!-- ([\w-]+) -->\n[\s\S]*?^<!-- \/\1 -->$/gm, '')
    .replace(/^(`{3,})[\s\S]*?^\1[ \t]*$/gm, '')
    .replace(/<!--[\s\S]*?-->/g, '')
    .replace(/\]\([^)]*\)/g, ']')
}

/** Two headings of a page never have the same anchor. */
export function checkAnchors(pages: readonly [path: string, text: string][]): string[] {
  return pages.flatMap(([path, text]) => {
    const headings = readHeadings(text).map((heading) =>
      heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, ''),
    )
    const twice = headings.filter((heading, i) => headings.indexOf(heading) < i)
    return twice.map((heading) => `${path}: two headings are "${heading}"`)
  })
}

const MIN_WORDS = 12

/** A fact has one page: no sentence of twelve words or more is on two pages. */
export function checkRepeats(pages: readonly [path: string, text: string][]): {
  checked: number
  problems: string[]
} {
  const seen = new Map<string, string>()
  const problems: string[] = []
  for (const [path, text] of pages) {
    const sentences = plainText(text)
      .replace(/`[^`\n]*`/g, '')
      .replace(/\s+/g, ' ')
      .split(/(?<=[.!?:]) |\|/)
    for (const sentence of sentences) {
      const words = sentence.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []
      if (words.length < MIN_WORDS) continue
      const key = words.join(' ')
      const other = seen.get(key)
      if (other !== undefined && other !== path) problems.push(`${path} repeats ${other}: ${sentence.trim()}`)
      seen.set(key, other ?? path)
    }
  }
  return { checked: seen.size, problems }
}
