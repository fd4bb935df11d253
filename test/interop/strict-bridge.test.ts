/** Our client and our server with a bridge of the official package between them, which drops what its schema does not know. */

import { type ConnectOptions, connect } from 'rondo/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { generateKey, type Server } from '../../packages/rondo/src/index.ts'
import { createOwnServer } from '../support/own-server.ts'
import { processFile } from '../support/process-file.ts'

let server: Server
let url: string

beforeAll(async () => {
  server = createOwnServer(generateKey())
  url = (await server.listen({ port: 0, signals: false, graceMs: 0 })).url
})
afterAll(() => server.close())

const answers: ConnectOptions['answers'] = {
  elicitation: { form: () => ({ action: 'accept', content: { name: 'Ada' } }) },
}

/** `extra` is what the bridge declares besides. */
function bridge(stderr: (line: string) => void, ...extra: string[]) {
  return {
    command: process.execPath,
    args: [processFile('test/support/strict-bridge.ts'), url, ...extra],
    stderr,
  }
}

describe('over stdio and a bridge to HTTP that checks every message', () => {
  it('F1 F2 a question arrives, is answered, and the call ends with its result', async () => {
    const dropped: string[] = []
    const options = { mode: '2025-11-25', answers } as const
    await using client = await connect(
      bridge((line) => void dropped.push(line)),
      options,
    )
    expect(await client.callTool('greet')).toMatchObject({ content: [{ text: 'Hello, Ada!' }] })
    expect(dropped).toEqual([])
  })

  it('drops the question if the client declares request-state: the bridge is as strict as the test assumes', async () => {
    let report = (_line: string): void => {}
    const dropped = new Promise<string>((resolve) => {
      report = resolve
    })
    await using client = await connect(
      bridge((line) => report(line), 'request-state'),
      { mode: '2025-11-25', answers },
    )
    const aborted = new AbortController()
    const call = client.callTool('greet', {}, { signal: aborted.signal })
    call.catch(() => {})
    expect(await dropped).toContain('dropped')
    aborted.abort()
    await expect(call).rejects.toThrow()
  })
})
