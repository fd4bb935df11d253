/**
 * Cuts a quoted command into its words, as a shell would where nothing is to be expanded: single and double quotes, and a
 * backslash before what should stand for itself. No shell runs; `$HOME`, `*` and `;` mean nothing here.
 */

import { usageError } from './command-error.ts'

const PART = /\s+|'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])|([^\s'"\\]+)/y

export function splitCommand(text: string): string[] {
  const words: string[] = []
  let word: string | undefined
  PART.lastIndex = 0
  while (PART.lastIndex < text.length) {
    const part = PART.exec(text)
    if (part === null) throw usageError(`The command has a quote or backslash without its end: ${text}`)
    const [whole, single, double, escaped, plain] = part
    const piece = single ?? double?.replace(/\\(["\\$`])/g, '$1') ?? escaped ?? plain
    if (piece !== undefined) word = (word ?? '') + piece
    else if (word !== undefined && whole !== '') {
      words.push(word)
      word = undefined
    }
  }
  if (word !== undefined) words.push(word)
  return words
}
