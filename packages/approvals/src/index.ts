/** Decisions by somebody other than the caller: `@rondo/approvals`. */

export {
  type Approvals,
  type ApprovalsDesk,
  type ApprovalsOptions,
  createApprovals,
} from './approvals.ts'
export type { Page, PageRange, RecordedHappening } from './desk.ts'
export type { Notice, Notifier } from './jobs.ts'
export { type LoginFunction, type OidcLogin, type OidcOptions, oidc } from './login.ts'
export { type EmailOptions, email, type MailTransport, type WebhookOptions, webhook } from './notify.ts'
export type { Identity, Member, PeopleOptions } from './people.ts'
export { type Verification, type VerifyOptions, verifyRecord } from './record.ts'
export type { Channel, Happening, Request, RequestState, Vote } from './request.ts'
export { type Click, type SlackNotifier, type SlackOptions, slack } from './slack.ts'
export type { Fetch } from './web.ts'
