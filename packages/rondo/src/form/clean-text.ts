/**
 * Makes foreign text safe to show, by the same rule everywhere: no control characters (a terminal would obey them), nothing that
 * reverses the direction of the text or is invisible, no lone surrogates. Where a line break could pass for one
 * of ours, `oneLine` leaves none.
 */

// Control characters except line break and tab; marks of direction; characters without width; annotations; tags.
const UNSAFE =
  /[^\P{Cc}\n\t]|[\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu
const LINE_BREAKS = /\r\n?|[\u0085\u2028\u2029]/g
const LONE_SURROGATES = /\p{Cs}/gu

/**
 * Makes text from a server safe to show: without control characters and others that hide or reorder text. Line breaks and tabs stay.
 *
 * @example
 * ```ts
 * console.log(displayText(text))
 * ```
 */
export function displayText(text: string): string {
  return text.replace(LINE_BREAKS, '\n').replace(UNSAFE, '').replace(LONE_SURROGATES, '\ufffd')
}

/** Makes text from a server safe to show, as one line. */
export function oneLine(text: string): string {
  return displayText(text).replace(/\s+/g, ' ').trim()
}

/**
 * Makes text from a server safe to show, and cuts it to `maxLength` characters. It becomes one line, unless `lines` says that line
 * breaks may stay.
 *
 * @example
 * ```ts
 * console.log(cleanText(text, 80))
 * ```
 */
export function cleanText(text: string, maxLength: number, lines: 'one' | 'many' = 'one'): string {
  // Cut first: the rest takes time in proportion to the length.
  const cut = text.length > maxLength ? text.slice(0, maxLength) : text
  const plain = displayText(cut).replace(lines === 'many' ? /\t/g : /[\n\t]/g, ' ')
  return text.length > maxLength ? `${plain.trim()}…` : plain.trim()
}

/** JSON text in which everything that must not be shown is escaped, so that it says the same and is still JSON. */
export function escapeUnsafe(json: string): string {
  return json.replace(UNSAFE, (found) =>
    // One by one: a character beyond the first plane is two escapes.
    Array.from(
      { length: found.length },
      (_, i) => `\\u${found.charCodeAt(i).toString(16).padStart(4, '0')}`,
    ).join(''),
  )
}
