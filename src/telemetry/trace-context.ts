/**
 * Trace context on the wire and in the journal. What a client sends (SEP-414: `traceparent`, `tracestate` and `baggage` in
 * `_meta`) is a claim: it is parsed strictly, its length is limited, and whatever does not fit is ignored.
 *
 * A span in the journal has 25 bytes, in base64url: trace id 16, span id 8, flags 1.
 */

import {
  type Baggage,
  createTraceState,
  isSpanContextValid,
  propagation,
  type SpanContext,
} from '@opentelemetry/api'

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/
const MAX_TRACESTATE = 512
const MAX_BAGGAGE = 4_096
const MAX_BAGGAGE_ENTRIES = 32
const PACKED = /^[A-Za-z0-9_-]{34}$/

type Carried = Readonly<Record<string, string>>

export function readTraceContext({ traceparent = '', tracestate }: Carried): SpanContext | undefined {
  const [, traceId = '', spanId = '', flags = ''] = TRACEPARENT.exec(traceparent) ?? []
  const traceFlags = Number.parseInt(flags, 16) & 1
  const context: SpanContext = { traceId, spanId, traceFlags, isRemote: true }
  if (!isSpanContextValid(context)) return undefined
  if (tracestate === undefined || tracestate.length > MAX_TRACESTATE) return context
  return { ...context, traceState: createTraceState(tracestate) }
}

export function writeTraceContext({ traceId, spanId, traceFlags, traceState }: SpanContext): Carried {
  const flags = (traceFlags & 1).toString(16).padStart(2, '0')
  const state = traceState?.serialize() ?? ''
  return { traceparent: `00-${traceId}-${spanId}-${flags}`, ...(state !== '' && { tracestate: state }) }
}

export function packSpan(context: SpanContext): string | undefined {
  if (!isSpanContextValid(context)) return undefined
  const { traceId, spanId, traceFlags } = context
  const flags = (traceFlags & 1).toString(16).padStart(2, '0')
  return Buffer.from(traceId + spanId + flags, 'hex').toString('base64url')
}

export function unpackSpan(packed: unknown): SpanContext | undefined {
  if (typeof packed !== 'string' || !PACKED.test(packed)) return undefined
  const hex = Buffer.from(packed, 'base64url').toString('hex')
  const traceFlags = Number.parseInt(hex.slice(48, 50), 16) & 1
  const context = { traceId: hex.slice(0, 32), spanId: hex.slice(32, 48), traceFlags, isRemote: true }
  return isSpanContextValid(context) ? context : undefined
}

const BAGGAGE_MEMBER =
  /^\s*([!#$%&'*+.^_`|~\w-]+)\s*=\s*([\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*)\s*(?:;|$)/

export function readBaggage(text: string | undefined): Baggage | undefined {
  if (text === undefined || text.length > MAX_BAGGAGE) return undefined
  const members = text.split(',').slice(0, MAX_BAGGAGE_ENTRIES)
  const entries = members.flatMap((member) => {
    const [, name, value] = BAGGAGE_MEMBER.exec(member) ?? []
    return name === undefined || value === undefined ? [] : [[name, { value: decoded(value) }] as const]
  })
  return entries.length === 0 ? undefined : propagation.createBaggage(Object.fromEntries(entries))
}

export function writeBaggage(baggage: Baggage | undefined): Carried {
  const members =
    baggage?.getAllEntries().map(([name, { value }]) => `${name}=${encodeURIComponent(value)}`) ?? []
  const text = members.slice(0, MAX_BAGGAGE_ENTRIES).join(',')
  return text === '' || text.length > MAX_BAGGAGE ? {} : { baggage: text }
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    return value
  }
}
