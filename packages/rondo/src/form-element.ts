/** `rondo/form-element`: a web component that shows the questions of MCP servers. It has no dependencies. */

export {
  askInPage,
  defineFormElement,
  type FormAnswer,
  type FormElement,
  type FormQuestion,
} from './form/element.ts'
export type { FieldValue } from './form/field.ts'
