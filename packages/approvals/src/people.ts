/**
 * Who may decide: members of the groups that were asked, and not the caller. Identities come from different places (the
 * caller's token, a login, Slack); `person` makes them comparable. Without it, issuer and subject are compared exactly, and
 * two identities that cannot be compared count as one person.
 *
 * people 1: A function of the operator that throws, or takes too long, neither denies nor grants: `PeopleUnavailable` is thrown,
 *           and whoever asked tries again.
 */

import { RondoError } from 'rondo'
import type { ApprovalRequest } from 'rondo/extension'
import type { Request, Vote } from './request.ts'

/** Somebody as one system knows them. */
export interface Identity {
  /** Where the identity comes from. */
  readonly kind: 'caller' | 'login' | 'slack'
  /** Who vouches for it: the issuer of a token, or `slack`. */
  readonly issuer?: string
  readonly subject: string
  readonly name?: string
  readonly email?: string
  readonly claims?: Readonly<Record<string, unknown>>
}

export interface Member {
  /** The id that `person` returns; without `person`, the subject of the login. */
  readonly id: string
  readonly name?: string
  /** For the notifier `email`. */
  readonly email?: string
}

export interface PeopleOptions {
  /** Returns the members of a group: ids, or `{ id, name, email }`. Asked when somebody decides, and again when the decision is used. */
  groups: (name: string) => readonly (string | Member)[] | Promise<readonly (string | Member)[]>
  /**
   * Returns the names of the groups that a person belongs to, for the inbox. Needed if more than 500 groups have open requests.
   * Default: the members of every group that has one are asked for.
   */
  groupsOf?: (person: string) => readonly string[] | Promise<readonly string[]>
  /**
   * Returns the id of the person behind an identity (the caller's, a login, a Slack user); undefined if the person is unknown. Default:
   * issuer and subject are compared.
   */
  person?: (identity: Identity) => string | undefined | Promise<string | undefined>
}

/** A function of the operator failed: nothing is known, so nothing is decided. An error of Rondo, so the log has its message. */
export class PeopleUnavailable extends RondoError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('SERVER_INTERNAL', message, options)
    this.name = 'PeopleUnavailable'
  }
}

export type Standing =
  | { readonly kind: 'may'; readonly person: string; readonly name: string }
  /** `stranger`: not a member, or unknown. `self`: the caller, or possibly the caller. */
  | { readonly kind: 'stranger' }
  | { readonly kind: 'self' }

export interface People {
  /** The id of the person behind a login or a Slack user; undefined if unknown. */
  idOf(identity: Identity): Promise<string | undefined>
  members(group: string): Promise<readonly Member[]>
  /** The groups of a person; undefined if the operator has no function for that. */
  groupsOf(id: string): Promise<readonly string[] | undefined>
  /** Whether somebody may decide this request now. */
  standing(request: Request, identity: Identity): Promise<Standing>
  /** The votes that count no more. */
  voidVotes(request: Request): Promise<ReadonlySet<Vote>>
}

const TIMEOUT_MS = 10_000

export function createPeople({ groups, groupsOf, person }: PeopleOptions, operators: boolean): People {
  const idOf = async (identity: Identity): Promise<string | undefined> => {
    // A Slack user is another name for somebody: only `person` knows for whom.
    if (!person) return identity.kind === 'slack' ? undefined : identity.subject
    const id = await askOperator('person', () => person(identity))
    if (id === undefined || id === null) return undefined
    if (typeof id !== 'string' || id === '')
      throw new PeopleUnavailable('person must return a text or undefined')
    return id
  }
  const members = async (group: string): Promise<readonly Member[]> => {
    const given = await askOperator(`groups(${JSON.stringify(group)})`, () => groups(group))
    if (!Array.isArray(given)) throw new PeopleUnavailable('groups must return a list of members')
    return given.map((one: string | Member) => (typeof one === 'string' ? { id: one } : one))
  }
  const memberIn = async (names: readonly string[], id: string): Promise<Member | undefined> => {
    for (const name of names) {
      const found = (await members(name)).find((member) => member.id === id)
      if (found) return found
    }
    return undefined
  }
  const isCaller = async ({ caller }: ApprovalRequest, identity: Identity, id: string): Promise<boolean> => {
    if (caller === undefined) return true
    if (person) {
      const callerId = await idOf({ ...caller, kind: 'caller' })
      return callerId === undefined || callerId === id
    }
    if (caller.issuer === undefined || caller.issuer !== identity.issuer) return true
    // A name in another case may be the same account at the issuer.
    return fold(caller.subject) === fold(identity.subject)
  }
  return {
    idOf,
    members,
    async groupsOf(id) {
      const names = groupsOf && (await askOperator('groupsOf', () => groupsOf(id)))
      if (names !== undefined && !Array.isArray(names))
        throw new PeopleUnavailable('groupsOf must return a list of names')
      return names
    },
    async standing(request, identity) {
      const id = await idOf(identity)
      const member = id === undefined ? undefined : await memberIn(request.groups, id)
      if (id === undefined || !member) return { kind: 'stranger' }
      if (!request.allowSelf && (await isCaller(request, identity, id))) return { kind: 'self' }
      return { kind: 'may', person: id, name: member.name ?? identity.name ?? id }
    },
    async voidVotes(request) {
      const gone = new Set<Vote>()
      for (const vote of request.votes) {
        const holds = vote.operator ? operators : await memberIn(request.groups, vote.person)
        if (!holds) gone.add(vote)
      }
      return gone
    },
  }
}

const fold = (subject: string): string => subject.normalize('NFKC').toLowerCase().trim()

/** Calls a function of the operator, and waits for it for a limited time. */
export async function askOperator<T>(what: string, ask: () => T | Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took longer than ${TIMEOUT_MS} ms`)), TIMEOUT_MS)
  })
  try {
    return await Promise.race([(async () => ask())(), late])
  } catch (error) {
    throw new PeopleUnavailable(`${what} failed`, { cause: error })
  } finally {
    clearTimeout(timer)
  }
}
