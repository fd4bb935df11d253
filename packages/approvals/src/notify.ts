/** Messages by a signed webhook and by mail. */

import { createHmac } from 'node:crypto'
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
 * Posts each message to an address, signed. The receiver checks `webhook-signature`, and ignores a `webhook-id` that it has seen:
 * a message that is sent again has the same one.
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
      const id = `msg_${notice.messageId}`
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
        signal: AbortSignal.timeout(10_000),
      })
      await response.body?.cancel()
      if (!response.ok) throw new Error(`The webhook answered ${response.status}`)
    },
  }
}

/** Messages of which it is remembered whom they reached. Beyond, and after a restart, a mail may come twice. */
const MAX_PARTLY = 1_000

/** The part of a nodemailer transport that is used. */
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
  /** The addresses that a message has reached, while it has not reached others. */
  const partly = new Map<string, Set<string>>()
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
      const key = notice.messageId
      // Remembered while mails are sent: this attempt may be given up before its end.
      const reached = partly.get(key) ?? new Set()
      partly.delete(key)
      partly.set(key, reached)
      const [oldest] = partly.keys()
      if (partly.size > MAX_PARTLY && oldest !== undefined) partly.delete(oldest)
      const to = notice.members.flatMap((member) => member.email ?? [])
      const failures: unknown[] = []
      for (const address of to.filter((one) => !reached.has(one)))
        await mailer.sendMail({ from, to: address, subject: subjectOf(notice), text: textOf(notice) }).then(
          () => void reached.add(address),
          (error) => void failures.push(error),
        )
      if (failures.length === 0) {
        partly.delete(key)
        return null
      }
      throw new AggregateError(failures, `${failures.length} of ${to.length} mails could not be sent`)
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

/** The facts of a request, one on each line. A text with line breaks cannot pass for another fact. */
export function factsOf({ tool, caller, details }: Pick<Notice, 'tool' | 'caller' | 'details'>): string[] {
  const facts = [['Tool', tool], ['Asked by', caller], ...Object.entries(details)] as const
  return facts.map(([name, value]) => `${toLine(name)}: ${toLine(value)}`)
}

/** Line breaks, and marks that change the direction of what follows. */
const MISLEADING = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu

const toLine = (value: unknown): string =>
  (typeof value === 'string' ? value : JSON.stringify(value)).replace(MISLEADING, toEscape)

/** Shows a character as its escape, such as `\u202e`. */
function toEscape(one: string): string {
  return one === '\n' ? '\\n' : `\\u${(one.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`
}

function textOf(notice: Notice): string {
  const { message, groups, until, url } = notice
  return [
    // Quoted, so that a message cannot pass for the lines below it.
    ...message.split(/\r\n|[\n\r\u2028\u2029]/).map((line) => `> ${toLine(line)}`),
    '',
    ...factsOf(notice),
    `May be decided by: ${groups.join(', ')}`,
    `Open until: ${new Date(until).toISOString()}`,
    '',
    `Decide here: ${url}`,
  ].join('\n')
}
