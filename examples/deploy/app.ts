/** Replaces `src/app.ts` in a fleet: tasks in PostgreSQL, tokens of your authorization server, metrics for Prometheus. */

import { PrometheusExporter } from '@opentelemetry/exporter-prometheus'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { oauthResource } from 'rondo/oauth'
import { otel } from 'rondo/otel'
import { createPostgresStore } from 'rondo/postgres'
import { createTracker } from './server.ts'

const { DATABASE_URL, RESOURCE, ISSUER, ALLOWED_HOSTS, ADDRESS_HEADER, HOST, METRICS_PORT } = process.env
if (!DATABASE_URL || !RESOURCE || !ISSUER) throw new Error('Set DATABASE_URL, RESOURCE and ISSUER.')

// Serves /metrics on a port of its own, which the proxy does not pass on.
const exporter = new PrometheusExporter({ host: HOST ?? '127.0.0.1', port: Number(METRICS_PORT ?? 9464) })

export default createTracker({
  store: createPostgresStore({ connectionString: DATABASE_URL }),
  authenticate: oauthResource({ resource: RESOURCE, issuers: [ISSUER] }),
  telemetry: otel({ meterProvider: new MeterProvider({ readers: [exporter] }) }),
  allowedHosts: ALLOWED_HOSTS?.split(','),
  addressHeader: ADDRESS_HEADER,
})
