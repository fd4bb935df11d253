/** One thing a form asks for, whoever asks and wherever it is shown. */

import type { FieldFormat } from './format.ts'

export type FieldType = 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'choices'

export type FieldValue = string | number | boolean | readonly string[]

export interface FieldOption {
  readonly value: string
  readonly title: string
}

export interface Field {
  readonly name: string
  /** What a person reads: the schema's title, or the name in words. */
  readonly title: string
  readonly type: FieldType
  readonly required: boolean
  /** Bounds on characters (text), on the number, or on how many are chosen (choices). */
  readonly limits: { readonly min?: number; readonly max?: number }
  /** What may be chosen; for choice and choices only. */
  readonly options?: readonly FieldOption[]
  readonly format?: FieldFormat
  readonly default?: FieldValue
  readonly description?: string
  /** Why the schema of this field could not be understood. It is then shown as a text. */
  readonly unsupported?: string
}

export interface Form {
  readonly fields: readonly Field[]
  /** What was left out or not understood, in sentences. Empty for a schema that keeps the rules. */
  readonly notes: readonly string[]
}
