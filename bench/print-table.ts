import type { Table } from './bench.ts'

/** The table under its title. */
export function printTable(table: Table): string {
  return `${table.title}\n\n${toMarkdown(table)}`
}

/** The page with the tables that it has a mark for. */
export function fillPage(page: string, tables: readonly Table[]): string {
  return tables.reduce((text, table) => {
    if (table.mark === undefined) return text
    const [begin, end] = [`<!-- ${table.mark} -->\n`, `<!-- /${table.mark} -->`]
    const [before, rest] = text.split(begin)
    const after = rest?.split(end)[1]
    return after === undefined ? text : `${before}${begin}\n${toMarkdown(table)}\n\n${end}${after}`
  }, page)
}

/** With aligned columns, so that it is readable in a terminal too. */
function toMarkdown({ columns, rows }: Table): string {
  const widths = columns.map((name, column) =>
    Math.max(name.length, ...rows.map((row) => (row[column] ?? '').length)),
  )
  const line = (cells: readonly string[]): string =>
    `| ${widths.map((width, column) => pad(cells[column] ?? '', width, column)).join(' | ')} |`
  const rule = `| ${widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`
  return [line(columns), rule, ...rows.map(line)].join('\n')
}

function pad(text: string, width: number, column: number): string {
  return column === 0 ? text.padEnd(width) : text.padStart(width)
}
