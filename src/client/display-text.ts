/**
 * Text from a server, made safe to show: without control characters, which could steer a terminal, and without the
 * characters that reorder or hide what a person reads. Line breaks and tabs stay.
 */

const UNSAFE =
  /[^\P{Cc}\n\t]|[\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\u{e0000}-\u{e007f}]|\p{Cs}/gu

export function displayText(text: string): string {
  return text.replace(/\r\n?/g, '\n').replace(UNSAFE, '')
}
