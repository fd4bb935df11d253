/** Spans and metrics of everything that runs in this process, in memory. Set up once: OpenTelemetry is global. */

import { context, metrics, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'

const HOUR_MS = 3_600_000

export interface Telemetry {
  /** For `otel`, where a test must not share what is recorded with others. */
  readonly providers: { readonly tracerProvider: BasicTracerProvider; readonly meterProvider: MeterProvider }
  /** Finished spans, in the order in which they ended. */
  spans(): readonly ReadableSpan[]
  /** Everything measured so far. */
  metrics(): Promise<readonly Measured[]>
  reset(): void
}

export interface Measured {
  readonly name: string
  readonly unit: string
  readonly points: readonly {
    readonly attributes: Readonly<Record<string, unknown>>
    readonly value: unknown
  }[]
}

export function recordTelemetry(): Telemetry {
  const exporter = new InMemorySpanExporter()
  const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const measured = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter: measured, exportIntervalMillis: HOUR_MS })
  const meters = new MeterProvider({ readers: [reader] })
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  trace.setGlobalTracerProvider(tracers)
  metrics.setGlobalMeterProvider(meters)
  return {
    providers: { tracerProvider: tracers, meterProvider: meters },
    spans: () => exporter.getFinishedSpans(),
    async metrics() {
      measured.reset()
      await reader.forceFlush()
      const all = measured.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics)
      return all.flatMap((scope) =>
        scope.metrics.map(({ descriptor, dataPoints }) => ({
          name: descriptor.name,
          unit: descriptor.unit,
          points: dataPoints.map(({ attributes, value }) => ({ attributes, value })),
        })),
      )
    },
    reset: () => exporter.reset(),
  }
}

/** The spans to which a span is linked, by the name of the link. */
export function linksOf({ links }: ReadableSpan): Record<string, string> {
  return Object.fromEntries(
    links.map(({ context, attributes }) => [String(attributes?.['rondo.link']), context.spanId]),
  )
}
