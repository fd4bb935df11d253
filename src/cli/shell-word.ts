/**
 * One word as a shell takes it. Names that a server chose stand in commands which people copy: they must not be able to
 * mean more than a word there.
 */

/** Letters and marks that no shell gives a meaning to; `…` stands for what the person fills in. */
const PLAIN = /^[\p{L}\p{N}@%+=:,./_…-]+$/u

export function shellWord(text: string): string {
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
