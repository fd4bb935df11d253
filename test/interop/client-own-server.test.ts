/** Our client against our own server. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connect } from '../../packages/rondo/src/client.ts'
import {
  createServer,
  generateKey,
  type Listening,
  type ServerOptions,
} from '../../packages/rondo/src/index.ts'
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

describe('the revision of our server is found by', () => {
  const CASES: readonly [NonNullable<ServerOptions['eras']>, string][] = [
    [['2025-11-25'], '2025-11-25'],
    [['DRAFT-2026-v1'], 'DRAFT-2026-v1'],
    [['2025-11-25', 'DRAFT-2026-v1'], '2025-11-25'],
    [['2026-07-28'], '2026-07-28'],
    [['2026-07-28', '2025-11-25', 'DRAFT-2026-v1'], '2026-07-28'],
  ]
  it.each(CASES)('connect(url), with eras %j', async (eras, version) => {
    const own = createServer({ name: 'own', version: '1.0.0', log: 'off', keys, eras })
    own.tool('greet', {}, async (_args, ctx) => ((await ctx.confirm('sure', 'Sure?')) ? 'yes' : 'no'))
    const { url } = await own.listen({ port: 0, signals: false })
    try {
      const elicitation = () => ({ action: 'accept', content: { confirm: true } }) as const
      await using client = await connect(url, { answers: { elicitation } })
      expect(client.protocolVersion).toBe(version)
      expect(await client.callTool('greet')).toMatchObject({ content: [{ text: 'yes' }] })
    } finally {
      await own.close()
    }
  })
})
