/** Messages by a signed webhook and by mail. */

import { createHmac, randomUUID } from 'node:crypto'
import type { Notice, Notifier } from './jobs.ts'

export interface WebhookOptions {
  /** The address to which each message is posted as JSON. */
  url: string
  /** Signs messages as Standard Webhooks describes: HMAC-SHA-256 over the id, the time and the body. */
  secret: string
  /** Distinguishes several webhooks. Default: `webhook`. */
  name?: string
}

/**
 * Posts each message to an address, signed. The receiver checks `webhook-signature`, and ignores a `webhook-id` that it has seen.
 *
 * @example
 * ```ts
 * const post = webhook({
 *   url: 'https://chat.example/hooks/approvals',
 *   secret: process.env.WEBHOOK_SECRET ?? '',
 * })
 * ```
 */
export function webhook({ url, secret, name = 'webhook' }: WebhookOptions): Notifier {
  if (!URL.canParse(url ?? '') || !/^https?:$/.test(new URL(url).protocol))
    throw new TypeError('webhook needs an address: webhook({ url, secret })')
  if (typeof secret !== 'string' || secret.length < 16)
    throw new TypeError('webhook needs a secret of at least 16 characters: webhook({ url, secret })')
  return {
    name,
    async notify({ ref: _, ...notice }) {
      const id = `msg_${randomUUID()}`
      const timestamp = Math.floor(Date.now() / 1000)
      const body = JSON.stringify(notice)
      const signature = createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64')
      const response = await fetch(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'webhook-id': id,
          'webhook-timestamp': String(timestamp),
          'webhook-signature': `v1,${signature}`,
        },
        body,
        redirect: 'error',
        signal: AbortSignal.timeout(20_000),
      })
      await response.body?.cancel()
      if (!response.ok) throw new Error(`The webhook answered ${response.status}`)
    },
  }
}

/** What is used of a transport of nodemailer. */
export interface MailTransport {
  sendMail(mail: { from?: string; to: string; subject: string; text: string }): Promise<unknown>
}

export interface EmailOptions {
  /** A transport of nodemailer, or the address of an SMTP server such as `smtps://user:password@mail.example`. */
  transport: MailTransport | string
  /** The sender. */
  from: string
  /** Distinguishes several notifiers. Default: `email`. */
  name?: string
}

/**
 * Sends a mail to every member who has an `email`. A link in it opens the page and decides nothing. Needs the package `nodemailer`
 * if `transport` is an address.
 *
 * @example
 * ```ts
 * const mail = email({ transport: 'smtps://approvals:secret@mail.example', from: 'approvals@example.com' })
 * ```
 */
export function email({ transport, from, name = 'email' }: EmailOptions): Notifier {
  if (typeof from !== 'string' || from === '')
    throw new TypeError('email needs a sender: email({ transport, from })')
  if (typeof transport !== 'string' && typeof transport?.sendMail !== 'function')
    throw new TypeError('email needs a transport of nodemailer, or the address of an SMTP server')
  let opened: Promise<MailTransport> | undefined
  const open = (): Promise<MailTransport> => {
    opened ??= typeof transport === 'string' ? openTransport(transport) : Promise.resolve(transport)
    return opened
  }
  return {
    name,
    async notify(notice) {
      // A mail cannot be changed later, and the page says what was decided.
      if (notice.kind === 'update') return null
      const mailer = await open()
      const to = notice.members.flatMap((member) => member.email ?? [])
      const failures: unknown[] = []
      for (const address of to)
        await mailer
          .sendMail({ from, to: address, subject: subjectOf(notice), text: textOf(notice) })
          .catch((error) => {
            failures.push(error)
          })
      if (failures.length > 0 && failures.length === to.length)
        throw new AggregateError(failures, 'No mail could be sent')
      return null
    },
  }
}

async function openTransport(address: string): Promise<MailTransport> {
  // Not a literal, because the package has no types of its own.
  const name: string = 'nodemailer'
  const { default: nodemailer } = await import(name).catch((cause) => {
    throw new TypeError('email needs the package "nodemailer": run npm install nodemailer', { cause })
  })
  return nodemailer.createTransport(address)
}

/** One line: a subject with a line break could add headers. */
function subjectOf({ kind, message }: Notice): string {
  const prefix = kind === 'reminder' ? 'Reminder: approval' : 'Approval'
  return `${prefix}: ${message.replace(/\p{C}+|\s+/gu, ' ').slice(0, 150)}`
}

function textOf({ tool, caller, message, details, until, url, groups }: Notice): string {
  const lines = Object.entries(details).map(
    ([name, value]) => `  ${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
  )
  return [
    message,
    '',
    `Tool: ${tool}`,
    `Asked by: ${caller}`,
    `May be decided by: ${groups.join(', ')}`,
    `Open until: ${new Date(until).toISOString()}`,
    ...(lines.length > 0 ? ['', 'Details:', ...lines] : []),
    '',
    `Decide here: ${url}`,
  ].join('\n')
}
