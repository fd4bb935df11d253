/**
 * `rondo/forms`: shows the questions of MCP servers. Turns a requested schema into neutral fields, and checks what a person
 * typed. No part of it needs Node.
 */

export { type CheckedField, type CheckedForm, checkField, checkForm, startValues } from './form/check.ts'
export { cleanText } from './form/clean-text.ts'
export type { Field, FieldOption, FieldType, FieldValue, Form } from './form/field.ts'
export type { FieldFormat } from './form/format.ts'
export type { FieldProblem } from './form/judge.ts'
export { readForm } from './form/read-form.ts'
