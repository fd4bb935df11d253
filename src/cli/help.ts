/** The help, made from the tables of commands, options and exit codes. */

import type { Command } from './command.ts'
import { EXITS } from './exit-code.ts'
import type { OptionTable } from './option-table.ts'
import { formatTable } from './table.ts'

export function helpOf(commands: readonly Command[]): string {
  return [
    'rondo: calls MCP servers whose tools ask back, and examines them',
    '',
    'Usage: rondo <command> [words] [options]',
    '',
    formatTable(commands.map(({ name, usage, summary }) => [`  ${name} ${usage}`, summary])),
    '',
    'A server is a URL, a file that exports one (server.ts), a quoted command ("node server.js"), or a command after --:',
    '  rondo tools http://127.0.0.1:3000/mcp',
    '  rondo call ./server.ts resolve_bug id=7',
    '  rondo call greet name=Ada -- npx my-server --flag',
    '',
    'Results go to stdout, questions and messages to stderr. "rondo help <command>" has the options of a command.',
    '',
    'Exit codes:',
    exitTable(),
  ].join('\n')
}

export function helpOn({ name, usage, summary, details = [], options }: Command): string {
  return [
    `Usage: rondo ${name} ${usage} [options]`,
    '',
    `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`,
    ...(details.length > 0 ? ['', ...details] : []),
    '',
    'Options:',
    optionTable(options),
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
