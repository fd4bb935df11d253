/**
 * The token with which a caller was identified, by the object that describes the caller. It is in no property, so that
 * handlers, logs and stores never see it; token exchange sends it to the authorization server, and to nobody else.
 */

const tokens = new WeakMap<object, string>()

export function keepToken(caller: object, token: string): void {
  tokens.set(caller, token)
}

export function tokenOf(caller: object): string | undefined {
  return tokens.get(caller)
}
