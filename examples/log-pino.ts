import pino from 'pino'
import { createServer, toLogRecord } from 'rondo'

const logger = pino()
const server = createServer({
  name: 'tracker',
  version: '1.0.0',
  log: (event) => logger[event.level](toLogRecord(event), event.event),
})

server.tool('ping', {}, () => 'pong')

export { server }
