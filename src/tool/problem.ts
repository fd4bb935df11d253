/** What a check says: the value as the handler sees it, or what is wrong with it. */

/** What is wrong with a value, and where: `items[0].name`, or an empty path for the value as a whole. */
export interface Problem {
  readonly path: string
  readonly message: string
}

export type Result<T = unknown> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly problems: readonly Problem[] }

/** More would help nobody, and a hostile value can have as many as it likes. */
export const MAX_PROBLEMS = 10

/** `['items', 0, 'first name']` as `items[0]["first name"]`. */
export function formatPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    const name = String(part).slice(0, 100)
    if (/^[0-9]+$/.test(name)) return `${text}[${name}]`
    if (!/^[\w$-]+$/.test(name)) return `${text}[${JSON.stringify(name)}]`
    return text === '' ? name : `${text}.${name}`
  }, '')
}
