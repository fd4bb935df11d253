/**
 * Forms that an app of the server draws (draft SEP-3118, part of the extension for MCP Apps): a question names the app in its `_meta`,
 * and remains a complete form for everybody else. Only clients that declare it are sent the name.
 *
 * ```
 * client  capabilities.extensions["io.modelcontextprotocol/ui"] = { mimeTypes: ["text/html;profile=mcp-app"], elicitation: {} }
 * server  capabilities.extensions["io.modelcontextprotocol/ui"] = { elicitation: {} }
 * form    params._meta.ui.resourceUri = "ui://…"
 * ```
 */

import { isRecord } from '../../lib/json.ts'
import type { ClientCapabilities, InputRequest } from '../wire.ts'

const UI_EXTENSION = 'io.modelcontextprotocol/ui'
const APP_TYPE = 'text/html;profile=mcp-app'

/** The extensions of a client that has forms drawn by apps. */
export const DRAWS_FORMS: NonNullable<ClientCapabilities['extensions']> = {
  [UI_EXTENSION]: { mimeTypes: [APP_TYPE], elicitation: {} },
}

/** The extensions of a server that has such apps. */
export const HAS_APPS: Readonly<Record<string, unknown>> = { [UI_EXTENSION]: { elicitation: {} } }

/** Whether the client has forms drawn by apps. That it shows apps beside the results of tools says nothing about forms. */
export function drawsForms({ elicitation, extensions }: ClientCapabilities): boolean {
  const ui = isRecord(extensions) ? extensions[UI_EXTENSION] : undefined
  // Clients of 2025-06-18 declare forms without naming them.
  const showsForms = isRecord(elicitation) && (isRecord(elicitation.form) || !isRecord(elicitation.url))
  if (!showsForms || !isRecord(ui)) return false
  return isRecord(ui.elicitation) && Array.isArray(ui.mimeTypes) && ui.mimeTypes.includes(APP_TYPE)
}

/** Whether a resource or template of the server can be such an app. */
export function hasApps(registry: {
  rows(listing: 'resources' | 'templates'): readonly Readonly<Record<string, unknown>>[]
}): boolean {
  const isApp = (uri: unknown): boolean => typeof uri === 'string' && uri.startsWith('ui://')
  return (
    registry.rows('resources').some(({ uri }) => isApp(uri)) ||
    registry.rows('templates').some(({ uriTemplate }) => isApp(uriTemplate))
  )
}

const MAX_URI = 2_048

/** Whether the text is an absolute `ui://` URI: printable ASCII, with a host and no user name. */
export function isAppUri(text: unknown): text is string {
  if (typeof text !== 'string' || text.length > MAX_URI || !/^ui:\/\/[!-~]+$/.test(text)) return false
  const url = URL.canParse(text) ? new URL(text) : undefined
  return url !== undefined && url.host !== '' && url.username === '' && url.password === ''
}

/** The app that a question names, if it is one to draw a form. */
export function appOf(request: InputRequest): string | undefined {
  if (request.method !== 'elicitation/create' || request.params.mode !== 'form') return undefined
  const ui = request.params._meta?.ui
  return isRecord(ui) && isAppUri(ui.resourceUri) ? ui.resourceUri : undefined
}

export function withApp(request: InputRequest, resourceUri: string): InputRequest {
  if (request.method !== 'elicitation/create' || request.params.mode !== 'form') return request
  const _meta = { ...request.params._meta, ui: { resourceUri } }
  return { method: request.method, params: { ...request.params, _meta } }
}

/** The request without the name of an app. A link has none, but its server may have added one. */
export function withoutApp(request: InputRequest): InputRequest {
  if (request.method !== 'elicitation/create') return request
  const { _meta, ...rest }: typeof request.params & { readonly _meta?: unknown } = request.params
  if (!isRecord(_meta) || !Object.hasOwn(_meta, 'ui')) return request
  const { ui: _, ...others } = _meta
  const params = Object.keys(others).length > 0 ? { ...rest, _meta: others } : rest
  return { method: request.method, params }
}
