import { generateKey } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createGateway } from './gateway.ts'
import type { GatewayOptions } from './options.ts'

const create = (options: Partial<GatewayOptions>) =>
  createGateway({ name: 'gateway', version: '1.0.0', keys: generateKey(), upstreams: {}, ...options })
const up = { url: 'http://127.0.0.1:9/mcp' }

describe('createGateway', () => {
  it.each<[string, Partial<GatewayOptions>, RegExp]>([
    ['W5 plain HTTP to another machine', { upstreams: { up: { url: 'http://example.com/mcp' } } }, /https/],
    [
      'W5 a password in a URL',
      { upstreams: { up: { url: 'https://a:b@example.com/mcp' } } },
      /not in the URL/,
    ],
    [
      'W5 headers for a command, which would get none',
      { upstreams: { up: { command: 'node', headers: { Authorization: 'x' } } } },
      /takes no headers/,
    ],
    ['R9 a time that no timer can take', { upstreams: { up }, hold: { waitMs: Infinity } }, /hold\.waitMs/],
    ['R9 a limit that is no number', { upstreams: { up }, hold: { maxCalls: Number.NaN } }, /hold\.maxCalls/],
  ])('refuses %s', (_name, options, wanted) => {
    expect(() => create(options)).toThrow(wanted)
  })

  it('W5 does not listen to other machines without authenticate', async () => {
    const gateway = create({ upstreams: { up } })
    await expect(gateway.listen({ port: 0, host: '0.0.0.0', signals: false })).rejects.toThrow(
      /needs authenticate/,
    )
    await gateway.close()
  })
})
