/** The scenarios of the official suite that are run, and those that are not expected to pass yet. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

export const REVISION = '2026-07-28'
/** The revisions whose scenarios are run, against the same server. */
export const REVISIONS: readonly string[] = [REVISION, '2025-11-25']
const suiteFolder = dirname(
  createRequire(import.meta.url).resolve('@modelcontextprotocol/conformance/package.json'),
)
export const SUITE_ENTRY: string = join(suiteFolder, 'dist/index.js')

/** Scenarios that are known not to pass yet. If one of them passes, the run fails until it is removed from this list. */
export const NOT_YET: ReadonlySet<string> = new Set([])

/** The suite skips this one against every server. */
export const ALWAYS_SKIPPED: ReadonlySet<string> = new Set(['tasks-status-notifications'])

/**
 * Two checks open a subscription with one request and trigger the change with another. Behind a round robin these
 * reach different instances, which do not notify each other unless they share a store.
 */
export const TWO_INSTANCE_WARNINGS: readonly RegExp[] = [
  /^sep-2575-server-sends-(prompts|tools)-list-changed-on-subscription$/,
]

/** Authorization at both revisions: what the suite requires of a client, then the extensions. */
const AUTH_SCENARIOS = [
  'auth/metadata-default',
  'auth/metadata-var1',
  'auth/metadata-var2',
  'auth/metadata-var3',
  'auth/basic-cimd',
  'auth/scope-from-www-authenticate',
  'auth/scope-from-scopes-supported',
  'auth/scope-omitted-when-undefined',
  'auth/scope-step-up',
  'auth/scope-retry-limit',
  'auth/token-endpoint-auth-basic',
  'auth/token-endpoint-auth-post',
  'auth/token-endpoint-auth-none',
  'auth/pre-registration',
  'auth/client-credentials-jwt',
  'auth/client-credentials-basic',
  'auth/enterprise-managed-authorization',
  'auth/wif-jwt-bearer',
  'auth/dpop',
  'auth/dpop-nonce',
]

/** The scenarios for a client at each revision. docs/reference/compatibility.md says which are left out, and why. */
export const CLIENT_SCENARIOS: Readonly<Record<string, readonly string[]>> = {
  '2026-07-28': [
    'tools_call',
    'request-metadata',
    'sep-2322-client-request-state',
    'http-standard-headers',
    'http-custom-headers',
    'http-invalid-tool-headers',
    'json-schema-ref-no-deref',
    'json-schema-2020-12-preservation',
    ...AUTH_SCENARIOS,
    'auth/resource-mismatch',
    'auth/offline-access-scope',
    'auth/offline-access-not-supported',
    'auth/authorization-server-migration',
    'auth/iss-supported',
    'auth/iss-not-advertised',
    'auth/iss-supported-missing',
    'auth/iss-wrong-issuer',
    'auth/iss-unexpected',
    'auth/iss-normalized',
    'auth/metadata-issuer-mismatch',
  ],
  '2025-11-25': [
    'initialize',
    'tools_call',
    'elicitation-sep1034-client-defaults',
    'sse-retry',
    'json-schema-2020-12-preservation',
    ...AUTH_SCENARIOS,
  ],
}

/** Every server scenario of the revision, in the suite's order: the required ones, then those it does not score. */
export function readServerScenarios(revision: string = REVISION): string[] {
  const yaml = readFileSync(join(suiteFolder, `requirements/${revision}.yaml`), 'utf8')
  const section = /^server:\n((?: {2}- .*\n)+)/m.exec(yaml)?.[1] ?? ''
  const required = [...section.matchAll(/^ {2}- (\S+)$/gm)].map((match) => match[1] ?? '')
  const notScored = [...yaml.matchAll(/^ {2}- scenario: (\S+)\n {4}leg: server$/gm)].map(
    (match) => match[1] ?? '',
  )
  return [...required, ...notScored]
}
