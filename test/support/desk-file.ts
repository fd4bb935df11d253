/** A file that exports a server, as "rondo call ./desk-file.ts" takes it. */
import { createDeskServer } from './desk-server.ts'

export default () => createDeskServer(process.env.RONDO_KEYS)
