/** OAuth for the client: `connect(url, { auth: oauth({ … }) })`. Not part of `rondo/client`, which most programs use without it. */

export type { AuthorizedRequest, ClientAuth, Credential, Refusal, RequestAuth } from './client/auth.ts'
export {
  type EnterpriseOptions,
  enterprise,
  type WorkloadOptions,
  workload,
} from './client/oauth/assertion.ts'
export { type ExchangeOptions, type ExchangeToken, exchange } from './client/oauth/exchange.ts'
export { oauth } from './client/oauth/oauth.ts'
export type {
  AssertionGrant,
  AssertionRequest,
  GivenClient,
  IdentityOptions,
  LoginAttempt,
  LoginLink,
  OAuth,
  OAuthOptions,
  SigningAlgorithm,
} from './client/oauth/options.ts'
export {
  type LoopbackOptions,
  loopback,
  memoryTokenStore,
  parseLogin,
  type StoredClient,
  type StoredGrant,
  type StoredLogin,
  type StoredTokens,
  type TokenStore,
} from './client/oauth/options.ts'
export type { AuthFetch } from './client/oauth/safe-fetch.ts'
export type { Challenge } from './client/transport/response-reader.ts'
export type { Principal } from './protocol/call.ts'
