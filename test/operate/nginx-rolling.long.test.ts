/** A rolling deploy behind a real nginx with our sample configuration: instances restart under load, and nobody notices. */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { generateKey } from 'rondo'
import { connect } from 'rondo/client'
import { describe, expect, onTestFinished } from 'vitest'
import { callTool } from '../support/echo-service.ts'
import { freePort, startNginx, withTool } from '../support/nginx.ts'
import { processFile } from '../support/process-file.ts'

const SAMPLE = readFileSync('examples/deploy/nginx.conf', 'utf8')
const CALLERS = 8
const RESTARTS = 12

interface Instance {
  readonly port: number
  start(): Promise<void>
  /** Sends SIGTERM, and resolves with the exit code. */
  stop(): Promise<number | null>
}

async function createInstance(env: Record<string, string>): Promise<Instance> {
  const port = await freePort()
  let child: ChildProcess | undefined
  onTestFinished(() => void child?.kill('SIGKILL'))
  return {
    port,
    async start() {
      child = fork(processFile('test/support/rolling-process.ts'), {
        env: { PATH: process.env.PATH, ...env, PORT: String(port) },
        execArgv: [],
      })
      await once(child, 'message')
    },
    async stop() {
      if (child === undefined) return null
      const exited = once(child, 'exit')
      child.kill('SIGTERM')
      const [code] = await exited
      return code
    },
  }
}

interface Tally {
  /** Responses by their status; 0 for a connection that broke. */
  readonly statuses: Map<number, number>
  /** Calls by what the caller got. */
  readonly results: Map<string, number>
}

const count = <T>(map: Map<T, number>, key: T): void => void map.set(key, (map.get(key) ?? 0) + 1)

/** Calls that ask, one after the other, until told to stop. Each response counts, before the client may repeat a request. */
async function call(url: URL, { statuses, results }: Tally, isOver: () => boolean): Promise<void> {
  const counted = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    try {
      const response = await fetch(input, init)
      count(statuses, response.status)
      return response
    } catch (error) {
      count(statuses, 0)
      throw error
    }
  }
  const client = await connect(new URL('/mcp', url), {
    fetch: counted,
    headers: { authorization: 'Bearer good' },
    answers: { elicitation: () => ({ action: 'accept', content: { confirm: true } }) },
  })
  while (!isOver()) {
    const outcome = await client.callTool('save', {}).then(
      ({ content }) => JSON.stringify(content),
      (error: unknown) => String(error),
    )
    count(results, outcome)
  }
  await client.close()
}

/** Restarts the two instances in turn under load, the next one as soon as the last one listens. */
async function deploy(nginx: string, config: string): Promise<Tally & { exits: (number | null)[] }> {
  const env = { RONDO_KEYS: generateKey('rolling'), RESOURCE: 'https://mcp.example.com/mcp' }
  const instances = [await createInstance(env), await createInstance(env)]
  for (const instance of instances) await instance.start()
  const proxy = await startNginx(
    nginx,
    config,
    instances.map(({ port }) => port),
  )
  onTestFinished(() => proxy.stop())

  const tally: Tally = { statuses: new Map(), results: new Map() }
  let over = false
  const callers = Array.from({ length: CALLERS }, () => call(proxy.url, tally, () => over))
  const exits: (number | null)[] = []
  for (let restart = 0; restart < RESTARTS; restart += 1) {
    const instance = instances[restart % 2]
    exits.push((await instance?.stop()) ?? null)
    await instance?.start()
  }
  over = true
  await Promise.all(callers)
  return { ...tally, exits }
}

const nginx = withTool('nginx')

describe('the sample of nginx in a rolling deploy', () => {
  nginx.it('E9 no request fails while instances are restarted with SIGTERM under load', async () => {
    const { statuses, results, exits } = await deploy(nginx.path, SAMPLE)
    expect([...statuses.keys()]).toEqual([200])
    expect([...results.keys()]).toEqual(['[{"type":"text","text":"saved"}]'])
    expect(exits).toEqual(Array(RESTARTS).fill(0))
    expect(statuses.get(200)).toBeGreaterThan(RESTARTS * CALLERS)
  })

  nginx.it('requests fail if nginx may ban an instance: the control', async () => {
    const banning = SAMPLE.replaceAll(' max_fails=0', '')
    expect(banning).not.toBe(SAMPLE)
    const { statuses } = await deploy(nginx.path, banning)
    expect(statuses.get(502)).toBeGreaterThan(0)
  })

  nginx.it('passes on where clients learn about the authorization of a protected server', async () => {
    const resource = 'https://mcp.example.com/mcp'
    const instance = await createInstance({ RONDO_KEYS: generateKey('rolling'), RESOURCE: resource })
    await instance.start()
    const proxy = await startNginx(nginx.path, SAMPLE, [instance.port, instance.port])
    onTestFinished(() => proxy.stop())
    const { headers, message } = callTool('save')
    const refused = await fetch(new URL('/mcp', proxy.url), {
      method: 'POST',
      headers,
      body: JSON.stringify(message),
    })
    expect(refused.status).toBe(401)
    const named = /resource_metadata="([^"]+)"/.exec(refused.headers.get('www-authenticate') ?? '')?.[1]
    const paths = [new URL(named ?? '').pathname, '/.well-known/oauth-protected-resource']
    for (const path of paths) {
      const found = await fetch(new URL(path, proxy.url))
      expect([path, found.status, await found.json()]).toMatchObject([path, 200, { resource }])
    }
    expect((await fetch(new URL('/readyz', proxy.url))).status).toBe(404)
  })
})
