/** Starts the fixture server in a separate process and makes sure that it responds. */

import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { processFile } from '../support/process-file.ts'
import { REVISION } from './scenario.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const START_MS = 120_000

export interface Fixture {
  readonly url: URL
  stop(): Promise<void>
}

/** The URL is the first line that the process prints. */
function readUrl(child: ChildProcess): Promise<URL> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('The fixture server did not start in time')), START_MS)
    if (child.stdout) createInterface(child.stdout).once('line', (line) => resolve(new URL(line.trim())))
    child.once('exit', (code) => reject(new Error(`the fixture server ended with code ${code}`)))
    child.once('exit', () => clearTimeout(timer))
  })
}

/** Three scenarios of the suite pass even if nothing listens, so check first. */
export async function probe(url: URL): Promise<void> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': REVISION,
    'io.modelcontextprotocol/clientCapabilities': {},
  }
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': REVISION,
      'mcp-method': 'server/discover',
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: { _meta } }),
    signal: AbortSignal.timeout(120_000),
  }).catch((error: Error) => {
    throw new Error(`No server responds at ${url}`, { cause: error })
  })
  const text = await response.text()
  if (response.status !== 200 || !text.includes(REVISION)) {
    throw new Error(`${url} does not support server/discover: HTTP ${response.status} ${text.slice(0, 300)}`)
  }
}

/** Starts a gateway in front of the server at `upstream`. */
export function startGateway(upstream: URL, env: Readonly<Record<string, string>> = {}): Promise<Fixture> {
  return startFixture({ ...env, CONFORMANCE_UPSTREAM: upstream.href }, 'test/conformance/gateway-server.ts')
}

export async function startFixture(
  env: Readonly<Record<string, string>> = {},
  file = 'test/conformance/server.ts',
): Promise<Fixture> {
  const child = spawn(process.execPath, [processFile(file), '--port', '0'], {
    cwd: ROOT,
    env: { ...process.env, RONDO_QUIET: '1', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL')
    await ended
  }
  try {
    const url = await readUrl(child)
    await probe(url)
    return { url, stop }
  } catch (error) {
    await stop()
    throw error
  }
}
