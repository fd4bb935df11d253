/** `rondo/oauth`: servers that accept access tokens of an authorization server. Needs the package `jose`. */

export type { TokenClaims } from './oauth/claims.ts'
export type { IntrospectionOptions } from './oauth/introspection.ts'
export type { Issuer, JwtOptions } from './oauth/jwt.ts'
export type { PublishedKey } from './oauth/key-set.ts'
export type { Fetch } from './oauth/remote.ts'
export {
  introspection,
  jwt,
  type OAuthResource,
  type OAuthResourceOptions,
  oauthResource,
  type TokenCheck,
  type VerifyToken,
} from './oauth/resource.ts'
