import { createServer } from 'rondo'
import { connect } from 'rondo/client'
import { otel } from 'rondo/otel'

const server = createServer({ name: 'tracker', version: '1.0.0', telemetry: otel() })
server.tool('ping', {}, () => 'pong')

const client = await connect(server, { telemetry: otel() })
await client.callTool('ping', {})
await client.close()
await server.close()
