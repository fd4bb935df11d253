/** The example of the README, in processes of its own. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { generateKey } from 'rondo'
import { describe, expect, it } from 'vitest'

describe('01 ask', () => {
  it('B2 the program of the README asks, is killed, and continues in another process', async () => {
    const keys = generateKey('readme')
    const first = await startExample('01-ask.ts', keys)
    const asked = await post(first.url, {})
    first.child.kill('SIGKILL')
    expect(asked).toMatchObject({
      result: { resultType: 'input_required', inputRequests: { resolution: {} } },
    })
    const second = await startExample('01-ask.ts', keys)
    const done = await post(second.url, {
      requestState: asked.result.requestState,
      inputResponses: { resolution: { action: 'accept', content: { resolution: 'Fixed' } } },
    })
    second.child.kill('SIGTERM')
    expect(done).toMatchObject({ result: { content: [{ text: 'Bug #7 resolved as Fixed.' }] } })
    expect(await second.exit).toBe(0)
  })
})

async function startExample(file: string, keys: string) {
  const child = spawn(process.execPath, ['--import', 'tsx', new URL(file, import.meta.url).pathname], {
    env: { ...process.env, PORT: '0', RONDO_KEYS: keys },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const exit = once(child, 'exit').then(([code]) => code)
  // Without this, a program that cannot start would be waited for in vain.
  const failure = text(child.stderr).then((errors) => {
    throw new Error(`${file} ended before it served: ${errors}`)
  })
  failure.catch(() => {})
  const [line] = await Promise.race([once(createInterface(child.stdout), 'line'), failure])
  return { child, exit, url: line.replace('Serving ', '') }
}

async function post(url: string, extra: Record<string, unknown>) {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
  }
  const params = { name: 'resolve_bug', arguments: { id: 7 }, ...extra, _meta }
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'resolve_bug',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
  })
  return response.json()
}
