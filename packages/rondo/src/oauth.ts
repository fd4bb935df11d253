/** `rondo/oauth`: servers that accept access tokens of an authorization server. Needs the package `jose`. */

export type { TokenClaims } from './oauth/claims.ts'
export type { Issuer, JwtOptions } from './oauth/jwt.ts'
export type { DpopOptions } from './oauth/possession.ts'
export type { Fetch, IntrospectionOptions, PublishedKey } from './oauth/remote.ts'
export {
  introspection,
  jwt,
  type OAuthResource,
  type OAuthResourceOptions,
  oauthResource,
  type RefusedToken,
  type TokenCheck,
  type VerifyToken,
} from './oauth/resource.ts'
