/** Our client against our own server. */

import { afterAll, beforeAll } from 'vitest'
import { generateKey, type Listening } from '../../src/index.ts'
import { createOwnServer } from '../support/own-server.ts'
import { processFile } from '../support/process-file.ts'
import { describeClient } from './client-suite.ts'

const keys = generateKey('k1')
const server = createOwnServer(keys)
let listening: Listening

beforeAll(async () => {
  listening = await server.listen({ port: 0, signals: false })
})

afterAll(() => server.close())

const stdio = {
  command: process.execPath,
  args: [processFile('test/support/own-stdio.ts')],
  env: { RONDO_KEYS: keys },
  stderr: 'ignore',
} as const

describeClient({ name: 'own', version: '1.0.0' }, [
  ['HTTP', { target: () => listening.url }],
  ['memory', { target: () => server }],
  ['stdio', { target: () => stdio }],
])
