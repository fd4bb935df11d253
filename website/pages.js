/**
 * Copies the documentation into `pages/`, where VitePress finds it, with links as the site needs them. docs/README.md is the
 * one list of pages: it becomes the sidebar and `llms.txt`.
 */

import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const OUT = join(ROOT, 'website/pages')
const REPOSITORY = 'https://git.rondo.example/rondo/blob/main/'

/** The sections of docs/README.md with the pages that they link to. */
export function readSections() {
  const parts = readFileSync(join(ROOT, 'docs/README.md'), 'utf8').split(/^## /m)
  return parts.slice(1).map((part) => ({
    text: part.split('\n')[0],
    items: Array.from(part.matchAll(/\[([^\]]+)\]\(([^)#]+\.md)\)/g), ([, text, href]) => {
      const source = posix.join('docs', href)
      return { text: text.charAt(0).toUpperCase() + text.slice(1), link: siteOf(source), source }
    }),
  }))
}

/** The address of a page on the site. */
function siteOf(source) {
  if (source === 'README.md') return '/'
  if (source === 'docs/README.md') return '/pages'
  return `/${source.replace(/^docs\//, '').replace(/\.md$/, '')}`
}

const fileOf = (link) => (link === '/' ? 'index.md' : `${link.slice(1)}.md`)

/** The text of a page with its links turned into those of the site; files that are no pages are in the repository. */
export function rewriteLinks(source, text, sources) {
  const code = /^(`{3,})[\s\S]*?^\1[ \t]*$|`[^`\n]*`/gm
  const link = /\]\((?!#|[a-z]+:)([^)\s#]+)(#[^)\s]*)?\)/g
  const hrefOf = (path) => {
    const target = posix.join(posix.dirname(source), path)
    if (sources.has(target)) return siteOf(target)
    return target.startsWith('docs/images/') ? target.slice('docs'.length) : REPOSITORY + target
  }
  const rewrite = (part) => part.replace(link, (_, path, anchor = '') => `](${hrefOf(path)}${anchor})`)
  const kept = []
  const marked = text.replace(code, (found) => `\0${kept.push(found) - 1}\0`)
  return rewrite(marked).replace(/\0(\d+)\0/g, (_, i) => kept[i])
}

export function writePages() {
  const sections = readSections()
  const pages = [
    { source: 'README.md', link: '/' },
    { source: 'docs/README.md', link: '/pages' },
    ...sections.flatMap(({ items }) => items),
  ]
  const sources = new Set(pages.map(({ source }) => source))
  rmSync(OUT, { recursive: true, force: true })
  for (const { source, link } of pages) {
    const file = join(OUT, fileOf(link))
    const text = rewriteLinks(source, readFileSync(join(ROOT, source), 'utf8'), sources)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
    // The page as Markdown, for programs that read llms.txt.
    const copy = join(OUT, 'public', fileOf(link))
    mkdirSync(dirname(copy), { recursive: true })
    writeFileSync(copy, text)
  }
  cpSync(join(ROOT, 'docs/images'), join(OUT, 'public/images'), { recursive: true })
  writeFileSync(join(OUT, 'public/llms.txt'), llms(sections))
}

/** The list for language models (llmstxt.org): every page, as Markdown. */
function llms(sections) {
  const lists = sections.map(
    ({ text, items }) =>
      `## ${text}\n\n${items.map((item) => `- [${item.text}](${item.link}.md)`).join('\n')}\n`,
  )
  return `# Rondo\n\n> MCP tools that stop in the middle, ask the user, and continue.\n\n${lists.join('\n')}`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writePages()
