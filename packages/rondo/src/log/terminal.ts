/**
 * The log for people at a terminal: one line per event, one line a round, with an error and its stack below. It shows the
 * same facts as the JSON log and may be reworded at any time; programs read the JSON.
 */

import { oneLine } from '../form/clean-text.ts'
import type { LogEvent, RoundEvent } from './event.ts'
import type { DescribedError } from './json.ts'

type Color = 'dim' | 'red' | 'green' | 'yellow' | 'cyan' | 'bold'

const CODES: Readonly<Record<Color, number>> = { dim: 2, red: 31, green: 32, yellow: 33, cyan: 36, bold: 1 }

type Paint = (color: Color, text: string) => string

export function formatForTerminal(
  event: LogEvent,
  now: number,
  colors: boolean,
  error: DescribedError | undefined,
): string {
  const paint: Paint = (color, text) => (colors ? `\x1b[${CODES[color]}m${text}\x1b[0m` : text)
  const time = paint('dim', new Date(now).toISOString().slice(11, 23))
  const place = placeOf(event)
  const parts = [time, mark(event, paint), sentence(event, paint)]
  const line = (place === '' ? parts : [...parts, paint('dim', place)]).join(' ')
  return [line, ...(error === undefined ? [] : errorLines(error, paint))].join('\n')
}

function mark({ level }: LogEvent, paint: Paint): string {
  if (level === 'error') return paint('red', '✗')
  return level === 'warn' ? paint('yellow', '!') : paint('green', '·')
}

/** Names come from clients; a terminal must not obey what is in them. */
const clean = oneLine

function sentence(event: LogEvent, paint: Paint): string {
  switch (event.event) {
    case 'round':
      return roundLine(event, paint)
    case 'state_refused':
      return `requestState refused: ${clean(event.reason)} ${clean(event.target ?? '')}`.trimEnd()
    case 'caller_refused':
      return `${event.status}: ${clean(event.reason)}`
    case 'fault':
      return `${paint('bold', clean(event.target))} ${paint('red', 'threw')}`
    case 'retry':
      return `${paint('bold', clean(event.target))} retries the ${event.work} ${clean(event.key)} in ${seconds(event.delayMs)}, after attempt ${event.attempt}`
    case 'undo': {
      const { undone, failed } = event
      const parts = [
        undone.length > 0 && `undid ${undone.map(clean).join(', ')}`,
        failed.length > 0 && `could not undo ${failed.map(clean).join(', ')}`,
      ]
      return `${paint('bold', clean(event.target))} ${parts.filter((part) => part !== false).join(', ')}`
    }
    case 'slow':
      return `${paint('bold', clean(event.target))} is still running after ${seconds(event.ms)}`
    case 'continuation':
      return `continuation: ${event.finding} ${clean(event.reason ?? '')}`.trimEnd()
    case 'warning':
      return clean(event.message)
    case 'start':
      return `${clean(event.name)} ${clean(event.version)} starts: keys ${event.keys.join(', ')}, store ${event.store}`
    case 'ready':
      return `${paint('green', 'ready')} at ${event.address}`
    case 'drain':
      return `draining ${event.phase}${event.ms === undefined ? '' : ` after ${seconds(event.ms)}`}`
    case 'task': {
      const after = event.failures ? ` after ${event.failures} turns that threw or died` : ''
      return `task ${event.phase.replace('_', ' ')}${after}${event.reason === undefined ? '' : `: ${event.reason}`}`
    }
    case 'session':
      return `session ${event.session} ${event.phase} (${clean(event.protocolVersion)})`
    case 'extension':
      return `${clean(event.extension)}: ${clean(event.message)}`
    case 'refused':
      return `${event.status}: ${event.message}${event.count > 1 ? ` (${event.count} times)` : ''}`
  }
}

function roundLine(event: RoundEvent, paint: Paint): string {
  const { outcome, asks, moved, code, executed, replayed, stateBytes } = event
  const failed = outcome === 'refused' || outcome === 'tool_error'
  const asked = asks?.length ? `: ${asks.map(({ key }) => clean(key)).join(', ')}` : ''
  const details = [
    `${event.ms} ms`,
    executed > 0 && `${executed} ran`,
    replayed > 0 && `${replayed} replayed`,
    stateBytes !== undefined && `${stateBytes} bytes`,
  ].filter((part) => part !== false)
  return [
    paint('bold', clean(event.target)),
    `round ${event.round}`,
    paint(failed ? 'red' : 'cyan', outcome) + asked + (moved ? ` (${moved})` : '') + (code ? ` ${code}` : ''),
    details.join(', '),
  ].join('  ')
}

function seconds(ms: number): string {
  return ms < 1_000 ? `${ms} ms` : `${Math.round(ms / 100) / 10} s`
}

/** Ids, short enough to read and long enough to search for. */
function placeOf(event: LogEvent): string {
  const { flow, task, turn } = event as { flow?: string; task?: string; turn?: number }
  return [
    flow !== undefined && `flow ${clean(flow)}`,
    task !== undefined && `task ${clean(task)}`,
    turn !== undefined && `turn ${turn}`,
  ]
    .filter((part) => part !== false)
    .join(' ')
}

function errorLines(error: DescribedError, paint: Paint): readonly string[] {
  const text = [error.name, error.message].filter((part) => part !== undefined).join(': ')
  const lines = text.split('\n').map((line) => paint('red', `  ${clean(line)}`))
  const frames = (error.stack ?? []).map((frame) => paint('dim', `    ${clean(frame)}`))
  const cause = error.cause ? [paint('dim', '  caused by'), ...errorLines(error.cause, paint)] : []
  return [...lines, ...frames, ...cause]
}
