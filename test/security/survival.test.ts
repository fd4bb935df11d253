/** Nothing that a caller sends ends the process, whatever mistakes its author made in hooks, results and logs (R11). */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { callTool } from '../support/echo-service.ts'
import { post } from '../support/post.ts'
import { processFile } from '../support/process-file.ts'

interface Target {
  readonly child: ChildProcess
  readonly port: number
}

async function start(env: Record<string, string> = {}): Promise<Target> {
  const child = fork(processFile('test/support/hook-process.ts'), {
    env: { ...process.env, ...env },
    silent: true,
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [{ port }] = (await once(child, 'message')) as [{ port: number }]
  return { child, port }
}

const bearer = (payload: object): Record<string, string> => ({
  authorization: `Bearer ${Buffer.from(JSON.stringify(payload)).toString('base64url')}`,
})

const INITIALIZE = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'a', version: '1' } },
}

const HOOK_ATTACKS: readonly [string, object][] = [
  ['an empty subject', { sub: '' }],
  ['a subject that is not a string', { sub: { a: 1 } }],
  ['a line break in a challenge', { iss: 'https://a\r\nSet-Cookie: b=c' }],
  ['a character beyond latin1 in a challenge', { iss: 'https://ключ.example' }],
  ['a body that is not a string', { body: { error: 'invalid_token' } }],
  ['a hook that throws', { fault: 'throw' }],
]

/** Sends a request; a closed connection counts as no response. */
async function send(
  port: number,
  headers: Record<string, string>,
  message: object,
): Promise<number | undefined> {
  const all = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...headers,
  }
  try {
    return (await post(port, { headers: all, body: JSON.stringify(message) })).status
  } catch {
    return undefined
  }
}

/** True if the process is alive and responds. */
async function serves({ child, port }: Target): Promise<boolean> {
  const echo = callTool('echo')
  const posted = await post(port, { headers: echo.headers, body: JSON.stringify(echo.message) }).catch(
    () => undefined,
  )
  return child.exitCode === null && posted?.text.includes('still here') === true
}

describe('I1 R11 a process whose hooks pass on what callers send', () => {
  it.each(HOOK_ATTACKS)('refuses %s and keeps serving', async (_, payload) => {
    const target = await start()
    const echo = callTool('echo')
    expect(await send(target.port, bearer(payload), INITIALIZE)).toBe(401)
    expect(await send(target.port, { ...echo.headers, ...bearer(payload) }, echo.message)).toBe(401)
    expect(await serves(target)).toBe(true)
  })

  it('control: ends with these requests if nothing is checked', async () => {
    const fatal: boolean[] = []
    for (const [, payload] of HOOK_ATTACKS) {
      const target = await start({ WEAK: '1' })
      const ended = once(target.child, 'exit')
      void send(target.port, bearer(payload), INITIALIZE)
      if (!('sub' in payload) || payload.sub === '') await ended
      fatal.push(!(await serves(target)))
    }
    expect(fatal).toEqual([true, false, true, true, true, true])
  })
})

describe('I1 R11 a process whose handlers and log fail', () => {
  it.each(['bigint', 'toJSON'])(
    'returns an error for a result that cannot be encoded (%s), in every era',
    async (name) => {
      const target = await start()
      const { headers, message } = callTool(name)
      const posted = await post(target.port, { headers, body: JSON.stringify(message) })
      expect(JSON.parse(posted.text)).toHaveProperty(['id'])
      const older = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
      const greeting = await post(target.port, { headers: older, body: JSON.stringify(INITIALIZE) })
      const session = String(greeting.headers['mcp-session-id'])
      const call = { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name } }
      const answered = await post(target.port, {
        headers: { ...older, 'mcp-session-id': session },
        body: JSON.stringify(call),
      })
      expect(answered.text).toContain('"id":2')
      expect(await serves(target)).toBe(true)
    },
  )

  it('keeps serving after a client leaves in the middle of a call', async () => {
    const target = await start()
    const { headers, message } = callTool('leave')
    const req = httpRequest({ port: target.port, path: '/mcp', method: 'POST', headers })
    req.on('error', () => {})
    req.end(JSON.stringify(message))
    await once(req, 'socket')
    await new Promise((resolve) => setImmediate(resolve))
    req.destroy()
    expect(await serves(target)).toBe(true)
  })
})
