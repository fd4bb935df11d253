/**
 * One line on stderr that moves while the server works: a spinner, or a bar where the server reports progress. Drawn on a
 * terminal only. Unlike the spinner of @clack/prompts it leaves stdin alone, so that Ctrl-C stays a signal.
 */

import { oneLine } from '../form/clean-text.ts'

export interface StatusLine {
  /** Shows that something goes on. */
  start(text: string): void
  progress(value: number, total?: number, message?: string): void
  /** Takes the line away so that something else can be written; the next tick draws it again. */
  hide(): void
  stop(): void
}

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']
const TICK_MS = 80
const BAR_WIDTH = 24

export function createStatusLine(output: NodeJS.WriteStream): StatusLine {
  if (output.isTTY !== true) return { start() {}, progress() {}, hide() {}, stop() {} }
  let timer: NodeJS.Timeout | undefined
  let frame = 0
  let text = ''
  let drawn = false
  const hide = (): void => {
    if (drawn) output.write('\r\x1b[2K')
    drawn = false
  }
  const draw = (): void => {
    frame = (frame + 1) % FRAMES.length
    const line = `${FRAMES[frame]} ${text}`
    output.write(`\r\x1b[2K${line.slice(0, Math.max(10, (output.columns ?? 80) - 1))}`)
    drawn = true
  }
  return {
    start(what) {
      text = oneLine(what)
      timer ??= setInterval(draw, TICK_MS).unref()
      draw()
    },
    progress(value, total, message) {
      const bar = total === undefined || !(total > 0) ? String(value) : drawBar(value, total)
      text = message === undefined ? bar : `${bar}  ${oneLine(message)}`
      if (timer !== undefined) draw()
    },
    hide,
    stop() {
      clearInterval(timer)
      timer = undefined
      hide()
    },
  }
}

export function drawBar(value: number, total: number): string {
  const share = Math.min(1, Math.max(0, value / total))
  const full = Math.round(share * BAR_WIDTH)
  return `${'█'.repeat(full)}${'░'.repeat(BAR_WIDTH - full)} ${value}/${total}`
}
