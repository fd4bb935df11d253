/** Our client against the official server 2.4.0. */

import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { createMcpHandler } from '@modelcontextprotocol/server'
import { afterAll, beforeAll } from 'vitest'
import { createOfficialServer } from '../support/official-server.ts'
import { processFile } from '../support/process-file.ts'
import { describeClient } from './client-suite.ts'

const handler = createMcpHandler(createOfficialServer)
let http: Server
let url: string

beforeAll(async () => {
  http = createServer(toNodeHandler(handler))
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
})

afterAll(() => new Promise((resolve) => http.close(resolve)))

const stdio = {
  command: process.execPath,
  args: [processFile('test/support/official-stdio.ts')],
  stderr: 'ignore',
} as const

describeClient({ name: 'official', version: '2.4.0' }, [
  ['HTTP', { target: () => url }],
  ['HTTP by fetch', { target: () => url, options: { fetch } }],
  ['memory', { target: () => handler }],
  ['stdio', { target: () => stdio }],
])
