/** Telemetry with OpenTelemetry, for a server and for a client. Needs the package `@opentelemetry/api`. */

export type {
  Observed,
  ObservedEvent,
  ObservedHappening,
  ObservedOperation,
  ObservedQueue,
  Observer,
  OperationEnd,
} from './protocol/observer.ts'
export { type OtelOptions, otel } from './telemetry/otel.ts'
