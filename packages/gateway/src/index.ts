/** `@rondo/gateway`: serves what other MCP servers offer, to clients of every revision. */

export type { AskLocally, LocalQuestion } from './ask.ts'
export type { ApprovalTerms, Decide, DecideFacts, Decision } from './decide.ts'
export { createGateway, type Gateway, type Traffic, type UpstreamStatus } from './gateway.ts'
export type { GatewayOptions, HoldLimits, UpstreamOptions } from './options.ts'
