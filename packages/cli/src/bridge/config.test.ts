import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Io } from '../io.ts'
import { serversOfFile } from './config.ts'

const folder = mkdtempSync(join(tmpdir(), 'rondo-config-'))
const io = { cwd: folder, env: { RONDO_HOME: folder }, now: Date.now } as unknown as Io
let count = 0

function file(value: unknown): string {
  count += 1
  const path = join(folder, `${count}.json`)
  writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value))
  return path
}

describe('the configuration of rondo bridge', () => {
  it('reads the forms that hosts write', async () => {
    const mcpServers = {
      local: { command: 'node', args: ['a.js'], env: { KEY: 'v' }, type: 'stdio', timeout: 30 },
      remote: { httpUrl: 'https://a.example/mcp', headers: { 'X-Key': 'k' }, timeout: 600_000 },
      nested: { transport: { type: 'streamableHttp', url: 'https://b.example/mcp' } },
      off: { command: 'x', disabled: true },
    }
    const { upstreams, loggedIn } = await serversOfFile(io, file({ mcpServers }))
    expect(loggedIn).toBe(true)
    expect(upstreams).toEqual({
      local: { command: 'node', args: ['a.js'], env: { KEY: 'v' }, cwd: folder, timeoutMs: 30_000 },
      remote: { url: 'https://a.example/mcp', headers: { 'X-Key': 'k' }, timeoutMs: 600_000 },
      nested: { url: 'https://b.example/mcp', headers: {} },
    })
  })

  it('W5 counts headers of this user as a login, and nothing else in a file', async () => {
    const url = 'https://a.example/mcp'
    const servers = (headers: object) => ({ mcpServers: { a: { url, headers }, b: { command: 'node' } } })
    expect(await serversOfFile(io, file(servers({})))).toMatchObject({ loggedIn: false })
    expect(await serversOfFile(io, file(servers({ Authorization: 'Bearer x' })))).toMatchObject({
      loggedIn: true,
    })
  })

  it.each<[string, unknown, RegExp]>([
    ['is not JSON', '{', /not valid JSON/],
    ['has no servers', { servers: 1 }, /needs the object "mcpServers"/],
    [
      'has only servers that are turned off',
      { mcpServers: { a: { command: 'x', enabled: false } } },
      /no server/,
    ],
    ['has a typo in a key', { mcpServers: { a: { comand: 'x' } } }, /"a".*Did you mean "command"/],
    ['has an unknown key', { mcpServers: { a: { command: 'x', zzzzzz: 1 } } }, /unknown key "zzzzzz"/],
    ['has a server of neither kind', { mcpServers: { a: {} } }, /either "command" or "url"/],
    [
      'has a server of both kinds',
      { mcpServers: { a: { command: 'x', url: 'https://a.example' } } },
      /either/,
    ],
    ['has a server that is a text', { mcpServers: { a: 'x' } }, /must be an object/],
    [
      'has arguments that are no list',
      { mcpServers: { a: { command: 'x', args: 'y' } } },
      /"args" must be a list/,
    ],
    [
      'has a variable that is no text',
      { mcpServers: { a: { command: 'x', env: { A: 1 } } } },
      /"env" must be/,
    ],
    [
      'has a time that is none',
      { mcpServers: { a: { command: 'x', timeout: 'soon' } } },
      /"timeout" must be/,
    ],
    [
      'names the oldest transport',
      { mcpServers: { a: { url: 'https://a.example', type: 'sse' } } },
      /2024-11-05/,
    ],
  ])('is refused if the file %s', async (_name, value, wanted) => {
    await expect(serversOfFile(io, file(value))).rejects.toThrow(wanted)
  })
})
