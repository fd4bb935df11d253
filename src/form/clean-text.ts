/**
 * Makes foreign text fit to be shown: no control characters (a terminal would obey them), nothing that reverses the
 * direction of what follows, and an end.
 */

// Bidirectional overrides and isolates, zero-width spaces, the byte order mark.
const INVISIBLE = /[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g
const LINE_BREAKS = /\r\n?|[\u0085\u2028\u2029]/g

/** One line, unless `lines` says that line breaks may stay. */
export function cleanText(text: string, maxLength: number, lines: 'one' | 'many' = 'one'): string {
  // Cut first: the rest costs time in proportion.
  const cut = text.length > maxLength ? text.slice(0, maxLength) : text
  const plain = stripControls(cut.replace(LINE_BREAKS, '\n').replace(INVISIBLE, ''), lines)
  return text.length > maxLength ? `${plain.trim()}…` : plain.trim()
}

function stripControls(text: string, lines: 'one' | 'many'): string {
  let clean = ''
  for (const char of text) {
    const code = char.codePointAt(0) ?? 0
    if (char === '\n') clean += lines === 'many' ? char : ' '
    else if (char === '\t') clean += ' '
    else if (code >= 0xd800 && code <= 0xdfff) clean += '\ufffd'
    else if (code >= 0x20 && (code < 0x7f || code > 0x9f)) clean += char
  }
  return clean
}
