/** For those who write an extension of a server (`server.use`): `rondo/extension`. */

export { JsonRpcError } from './errors.ts'
export type { Reply, TaskState, WireError } from './protocol/reply.ts'
export type {
  CallFacts,
  CallReply,
  Extension,
  ExtensionHost,
  MethodCall,
  MethodHandler,
  Route,
} from './serve/extension.ts'
