/** Databases that worker processes can reach too, and the helpers that tests of stores and engines share with the contract. */

import type { StoreSite } from '../../../packages/store-kit/src/harness.ts'

export {
  alice,
  answers,
  bob,
  claimNew,
  createTime,
  inputs,
  newTask,
  until,
} from '../../../packages/store-kit/src/harness.ts'

/** The place of the database, for a process. */
export type StoreAddress =
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'postgres'; readonly connectionString: string; readonly schema: string }

/** One database for one test; every handle that is opened on it is closed with it. */
export interface Database extends StoreSite {
  readonly address: StoreAddress
}

export interface DatabaseHarness {
  readonly name: string
  create(): Promise<Database>
}
