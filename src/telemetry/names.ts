/** Every name that `rondo/otel` uses. `docs/reference/telemetry.md` lists the same, and a test compares the two. */

/** From the semantic conventions for MCP (Development). */
export const CONVENTION = {
  method: 'mcp.method.name',
  protocolVersion: 'mcp.protocol.version',
  requestId: 'jsonrpc.request.id',
  tool: 'gen_ai.tool.name',
  prompt: 'gen_ai.prompt.name',
  operation: 'gen_ai.operation.name',
  errorType: 'error.type',
  statusCode: 'rpc.response.status_code',
} as const

/** Our own. */
export const ATTRIBUTE = {
  flow: 'rondo.flow.id',
  round: 'rondo.round',
  outcome: 'rondo.outcome',
  asks: 'rondo.asks',
  replayed: 'rondo.ops.replayed',
  executed: 'rondo.ops.executed',
  stateBytes: 'rondo.state.bytes',
  moved: 'rondo.moved',
  task: 'rondo.task.id',
  turn: 'rondo.task.turn',
  humanWait: 'rondo.human.wait',
  link: 'rondo.link',
  workKind: 'rondo.work.kind',
  workName: 'rondo.work.name',
  reason: 'rondo.reason',
} as const

export const METRIC = {
  server: 'mcp.server.operation.duration',
  client: 'mcp.client.operation.duration',
  rounds: 'rondo.flow.rounds',
  humanWait: 'rondo.human.wait',
  refused: 'rondo.state.refused',
  tasksOpen: 'rondo.tasks.open',
  dueAge: 'rondo.tasks.due.age',
} as const
