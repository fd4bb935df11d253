import { context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import { otel } from 'rondo/otel'
import { startBeside } from './rondo.ts'
import type { StartServer } from './start.ts'

const DISCARD: SpanExporter = {
  export: (_spans, done) => done({ code: 0 }),
  shutdown: async () => {},
}

/** Rondo with spans, every one of which is recorded and then discarded. */
export const start: StartServer = (tools, plainFirst) => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  trace.setGlobalTracerProvider(
    new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(DISCARD)] }),
  )
  return startBeside(tools, { telemetry: otel() }, plainFirst)
}
