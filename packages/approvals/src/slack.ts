/**
 * Messages in Slack, with buttons: `chat.postMessage` when a request is opened, `chat.update` when it is closed, and the clicks
 * that Slack sends to `<url>/callbacks/slack`.
 *
 * slack 1: A click counts only with a valid signature that is at most five minutes old, of a user whom `person` knows.
 * slack 2: Texts of callers are plain text for Slack, never markup: no mention, no link, no formatting.
 * slack 3: A message has buttons that decide only if it shows everything that the page shows of the request's message and details.
 */

import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Notice, Notifier } from './jobs.ts'
import { factsOf } from './notify.ts'

export interface SlackOptions {
  /** The bot token, with the scope `chat:write`. */
  token: string
  /** Checks that a click comes from Slack. */
  signingSecret: string
  /** The id of the channel. */
  channel: string
  /** Distinguishes several channels. Default: `slack`. */
  name?: string
  /** The address of the Web API, for a test. Default: `https://slack.com/api`. */
  api?: string
}

/** A click on a button. */
export interface Click {
  readonly id: string
  readonly approve: boolean
  /** `team/user`, which `person` maps to a person. */
  readonly user: string
  readonly name: string
  /** Where Slack takes a reply that only this user sees. */
  readonly replyTo?: string
}

/** A notifier that also receives clicks. */
export interface SlackNotifier extends Notifier {
  readonly kind: 'slack'
  /** Returns the click that Slack sent; `ignored` if it decides nothing, such as one on a link; undefined if the signature is wrong. */
  readClick(headers: Headers, body: string, now: number): Click | 'ignored' | undefined
  /** Tells the user who clicked, and nobody else, what became of the click. */
  reply(click: Click, text: string): Promise<void>
}

const API = 'https://slack.com/api'
const MAX_AGE_S = 300

/**
 * Posts a message with buttons to a channel, and updates it when the request is closed. Set `<url>/callbacks/slack` as the address
 * for interactivity.
 *
 * @example
 * ```ts
 * const chat = slack({ token, signingSecret, channel: 'C0123456789' })
 * ```
 */
export function slack({
  token,
  signingSecret,
  channel,
  name = 'slack',
  api = API,
}: SlackOptions): SlackNotifier {
  for (const [option, value] of Object.entries({ token, signingSecret, channel }))
    if (typeof value !== 'string' || value === '')
      throw new TypeError(`slack needs ${option}: slack({ token, signingSecret, channel })`)
  const call = async (method: string, body: unknown): Promise<Record<string, unknown>> => {
    const response = await fetch(`${api}/${method}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json; charset=utf-8', authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
      redirect: 'error',
      signal: AbortSignal.timeout(10_000),
    })
    const result = (await response.json().catch(() => ({}))) as Record<string, unknown>
    if (!response.ok || result.ok !== true)
      throw new Error(`Slack refused ${method}: ${String(result.error ?? response.status)}`)
    return result
  }
  return {
    kind: 'slack',
    name,
    async notify(notice) {
      const message = { channel, text: escaped(plain(notice.message, 200)), blocks: blocksOf(notice) }
      const { ts } = (notice.ref ?? {}) as { ts?: string }
      if (notice.kind === 'update') {
        if (ts !== undefined) await call('chat.update', { ...message, ts })
        return notice.ref
      }
      const posted = await call(
        'chat.postMessage',
        ts === undefined ? message : { ...message, thread_ts: ts },
      )
      return { ts: ts ?? posted.ts }
    },
    readClick(headers, body, now) {
      const timestamp = headers.get('x-slack-request-timestamp') ?? ''
      if (!/^\d{1,12}$/.test(timestamp) || Math.abs(now / 1000 - Number(timestamp)) > MAX_AGE_S)
        return undefined
      const given = Buffer.from(headers.get('x-slack-signature') ?? '')
      const expected = Buffer.from(
        `v0=${createHmac('sha256', signingSecret).update(`v0:${timestamp}:${body}`).digest('hex')}`,
      )
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined
      return toClick(new URLSearchParams(body).get('payload')) ?? 'ignored'
    },
    async reply({ replyTo }, text) {
      if (replyTo === undefined) return
      const response = await fetch(replyTo, {
        method: 'POST',
        headers: { 'content-type': 'application/json; charset=utf-8' },
        body: JSON.stringify({ response_type: 'ephemeral', replace_original: false, text: escaped(text) }),
        redirect: 'error',
        signal: AbortSignal.timeout(10_000),
      })
      await response.body?.cancel()
      if (!response.ok) throw new Error(`Slack refused a reply: ${response.status}`)
    },
  }
}

interface Payload {
  readonly type?: unknown
  readonly user?: { readonly id?: unknown; readonly team_id?: unknown; readonly name?: unknown }
  readonly team?: { readonly id?: unknown }
  readonly response_url?: unknown
  readonly actions?: readonly { readonly action_id?: unknown; readonly value?: unknown }[]
}

function toClick(text: string | null): Click | undefined {
  let payload: Payload
  try {
    payload = JSON.parse(text ?? '')
  } catch {
    return undefined
  }
  const { type, user, team, actions, response_url: replyTo } = payload ?? {}
  const [action] = Array.isArray(actions) ? actions : []
  const teamId = user?.team_id ?? team?.id
  if (type !== 'block_actions' || typeof user?.id !== 'string' || typeof teamId !== 'string') return undefined
  if (typeof action?.value !== 'string' || !/^[\w-]{1,128}$/.test(action.value)) return undefined
  if (action.action_id !== 'approve' && action.action_id !== 'deny') return undefined
  const name = typeof user.name === 'string' ? user.name : user.id
  const click = {
    id: action.value,
    approve: action.action_id === 'approve',
    user: `${teamId}/${user.id}`,
    name,
  }
  return typeof replyTo === 'string' && URL.canParse(replyTo) ? { ...click, replyTo } : click
}

const plain = (text: string, max: number): string => (text.length > max ? `${text.slice(0, max - 1)}…` : text)

/** The text of a message is markup, unlike that of its blocks. */
const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

const MAX_SECTION = 2_900

const section = (text: string) => ({
  type: 'section',
  text: { type: 'plain_text', text: plain(text, MAX_SECTION), emoji: false },
})

function blocksOf(notice: Notice): unknown[] {
  const { id, url, message, until, state, decidedBy, kind } = notice
  const by = decidedBy.map(({ name, approve }) => `${name} ${approve ? 'approved' : 'denied'}`).join(', ')
  const title = `${kind === 'reminder' ? 'Reminder: ' : ''}${message}`
  const facts = [...factsOf(notice), `Open until ${new Date(until).toISOString()}`].join('\n')
  const shown = [section(title), section(facts)]
  const button = (action_id: string, text: string, style: string) => ({
    type: 'button',
    action_id,
    value: id,
    style,
    text: { type: 'plain_text', text },
  })
  const page = { type: 'button', action_id: 'page', url, text: { type: 'plain_text', text: 'Open the page' } }
  if (state !== 'open') return [...shown, section(`${state}${by === '' ? '' : ` (${by})`}`)]
  // Nobody decides about what a long value has pushed out of sight.
  const isWhole = title.length <= MAX_SECTION && facts.length <= MAX_SECTION
  const decide = [button('approve', 'Approve', 'primary'), button('deny', 'Deny', 'danger')]
  const actions = { type: 'actions', elements: [...(isWhole ? decide : []), page] }
  return [...shown, ...(by === '' ? [] : [section(by)]), actions]
}
