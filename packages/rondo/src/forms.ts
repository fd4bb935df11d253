/**
 * `rondo/forms`: shows the questions of MCP servers. Turns a requested schema into neutral fields, and checks what a person
 * typed. No part of it needs Node.
 */

export { cleanText } from './form/clean-text.ts'
export type { Field, FieldFormat, FieldOption, FieldType, FieldValue, Form } from './form/field.ts'
export { readForm } from './form/form.ts'
export type { FieldProblem } from './form/judge.ts'
export { type CheckedField, type CheckedForm, checkField, checkForm, startValues } from './form/judge.ts'
