/** Other arguments for the same tool, likely to be valid: one value changed at a time, by the schema. */

import { isRecord } from '../../lib/is-record.ts'
import type { JsonSchema } from '../../protocol/wire.ts'

type Args = Readonly<Record<string, unknown>>

const MAX_VARIANTS = 4

export function varyArguments(args: Args, schema: JsonSchema): Args[] {
  const { properties } = schema
  if (!isRecord(properties)) return []
  const variants = Object.entries(properties).flatMap(([name, part]) => {
    const other = isRecord(part) ? otherValue(args[name], part) : undefined
    return other === undefined ? [] : [{ ...args, [name]: other }]
  })
  return variants.slice(0, MAX_VARIANTS)
}

function otherValue(value: unknown, schema: JsonSchema): unknown {
  const { type, enum: options, minimum, maximum, format } = schema
  if (Array.isArray(options)) return options.find((option) => option !== value)
  switch (type) {
    case 'boolean':
      return value !== true
    case 'integer':
    case 'number': {
      const now = typeof value === 'number' ? value : typeof minimum === 'number' ? minimum : 0
      return typeof maximum === 'number' && now + 1 > maximum ? now - 1 : now + 1
    }
    case 'string':
      return format === undefined && typeof schema.pattern !== 'string'
        ? `${String(value ?? '')}1`
        : undefined
  }
  return undefined
}
