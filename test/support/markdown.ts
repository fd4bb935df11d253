/** Reads what the documentation tests need from Markdown: headings, anchors, links and fenced code. */

export interface Fence {
  readonly language: string
  readonly code: string
  /** The HTML comment on the line before, e.g. `from examples/01-ask.ts`. */
  readonly mark: string | undefined
}

const FENCE = /^(`{3,}|~{3,})(.*)$/
const COMMENT = /^<!--\s*(.*?)\s*-->$/

export function readFences(markdown: string): Fence[] {
  const fences: Fence[] = []
  let open: { fence: string; language: string; mark: string | undefined; lines: string[] } | undefined
  let before: string | undefined
  for (const line of markdown.split('\n')) {
    const [, fence, info] = FENCE.exec(line.trimStart()) ?? []
    if (open === undefined && fence !== undefined) {
      open = { fence, language: (info ?? '').trim(), mark: COMMENT.exec(before ?? '')?.[1], lines: [] }
    } else if (open !== undefined && fence === open.fence && info === '') {
      fences.push({ language: open.language, code: open.lines.join('\n'), mark: open.mark })
      open = undefined
    } else open?.lines.push(line)
    if (line.trim() !== '') before = line.trim()
  }
  return fences
}

/** The text without code, to be searched for links and headings. */
function withoutCode(markdown: string): string {
  let fence: string | undefined
  const lines = markdown.split('\n').map((line) => {
    const mark = FENCE.exec(line.trimStart())?.[1]
    const inside = fence !== undefined
    if (mark !== undefined && (fence === undefined || mark === fence)) fence = inside ? undefined : mark
    return inside || mark !== undefined ? '' : line
  })
  return lines.join('\n')
}

export function readHeadings(markdown: string, level?: number): string[] {
  const pattern = level === undefined ? /^#{1,6}\s+(.*)$/gm : new RegExp(`^#{${level}}\\s+(.*)$`, 'gm')
  return [...withoutCode(markdown).matchAll(pattern)].map((match) => (match[1] ?? '').trim())
}

/** The anchors of a page as GitHub generates them: heading texts in lower case, spaces as hyphens, duplicates numbered. */
export function readAnchors(markdown: string): Set<string> {
  const anchors = new Set<string>()
  for (const heading of readHeadings(markdown)) {
    const plain = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
    const slug = plain.replace(/[^\p{L}\p{N}\s_-]/gu, '').replace(/\s/g, '-')
    let unique = slug
    for (let n = 1; anchors.has(unique); n++) unique = `${slug}-${n}`
    anchors.add(unique)
  }
  for (const [, id] of markdown.matchAll(/<a (?:id|name)="([^"]+)"/g)) if (id) anchors.add(id)
  return anchors
}

/** Targets of links and images: inline, by reference, and in HTML attributes. */
export function readLinks(markdown: string): string[] {
  const text = withoutCode(markdown).replace(/`[^`\n]*`/g, '')
  const patterns = [
    /\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g,
    /^\[[^\]]+\]:\s*(\S+)/gm,
    /\b(?:href|src)="([^"]+)"/g,
  ]
  return patterns.flatMap((pattern) => [...text.matchAll(pattern)].map((match) => match[1] ?? ''))
}
