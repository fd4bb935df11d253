/** The help, built from the tables of commands, options, exit codes, files and variables; docs/reference/cli.md is built from the same tables. */

import { type Command, EXITS, type OptionTable } from './command-line.ts'
import { FILES, VARIABLES } from './home.ts'
import { formatTable } from './io.ts'

const WIDTH = 118

export function helpOf(commands: readonly Command[]): string {
  return [
    'rondo: call and examine MCP servers whose tools ask questions',
    '',
    'Usage: rondo <command> [arguments] [options]',
    '',
    formatTable(commands.map(({ name, usage, summary }) => [`  ${name} ${usage}`, summary])),
    '',
    'A server is a URL, a file that exports one (server.ts), a quoted command ("node server.js"), or a command after --:',
    '  rondo tools http://127.0.0.1:3000/mcp',
    '  rondo call ./server.ts resolve_bug id=7',
    '  rondo call greet name=Ada -- npx my-server --flag',
    '',
    'Results go to stdout, questions and messages to stderr. "rondo help <command>" lists the options of a command.',
    '',
    'Environment:',
    listOf(VARIABLES),
    '',
    'Files:',
    listOf(FILES),
    '',
    'Exit codes:',
    exitTable(),
  ].join('\n')
}

export function helpOn({ name, usage, summary, details = [], table, json, options, see }: Command): string {
  return [
    `Usage: rondo ${name} ${usage} [options]`,
    '',
    `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`,
    ...details.flatMap((paragraph) => ['', ...wrap(plain(paragraph), WIDTH)]),
    ...(table === undefined
      ? []
      : ['', `${table.name.charAt(0).toUpperCase()}${table.name.slice(1)}s:`, listOf(table.rows)]),
    '',
    'Options:',
    optionTable(options),
    ...(json === undefined ? [] : ['', ...wrap(plain(`JSON: ${json}.`), WIDTH)]),
    ...(see === undefined ? [] : ['', `See ${see.split('#')[0]}.`]),
    '',
    'Exit codes:',
    exitTable(),
  ].join('\n')
}

function optionTable(options: OptionTable): string {
  const rows = Object.entries(options).map(([name, { value, help, short }]) => {
    const long = value === undefined ? `--${name}` : `--${name} ${value}`
    return [`  ${short === undefined ? '' : `-${short}, `}${long}`, help]
  })
  return formatTable(rows)
}

function exitTable(): string {
  return formatTable(
    Object.values(EXITS).map(({ code, meaning }) => [`  ${String(code).padStart(3)}`, meaning]),
  )
}

/** Words and their meanings, in two columns; the second one is wrapped. */
function listOf(rows: Readonly<Record<string, string>>): string {
  const width = Math.max(...Object.keys(rows).map((word) => word.length)) + 4
  return Object.entries(rows)
    .flatMap(([word, meaning]) =>
      wrap(plain(meaning), WIDTH - width).map(
        (line, i) => `${(i === 0 ? `  ${word}` : '').padEnd(width)}${line}`,
      ),
    )
    .join('\n')
}

/** Text without Markdown: code with a space in it is quoted. */
function plain(text: string): string {
  return text.replace(/`([^`]+)`/g, (_, code: string) => (/^[^"]* [^"]*$/.test(code) ? `"${code}"` : code))
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}
