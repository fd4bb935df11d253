import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { createServer } from '../../serve/server.ts'
import { warnOfPatterns } from './subschemas.ts'

const warningsOf = async (...patterns: string[]): Promise<string[]> => {
  const warnings: string[] = []
  await warnOfPatterns('It', { anyOf: patterns.map((pattern) => ({ pattern })) }, (text) =>
    warnings.push(text),
  )
  return warnings
}

describe('the warning about patterns in development mode', () => {
  it.each([
    '^(a+)+$',
    '^(a|a)*$',
    '^(\\w+\\s?)*$',
    '^(.*,)*$',
    '^(?:\\d+|[a-f0-9]+)*$',
    '^(([a-z])+.)+[A-Z]([a-z])+$',
  ])('T11 names the pattern %s, which takes exponential time', async (pattern) => {
    expect(await warningsOf(pattern)).toEqual([
      expect.stringContaining(`the pattern ${pattern}, which redos`),
    ])
  })

  it.each(['', '^[a-z0-9_-]{1,64}$', '^a+$', '^(a|b)*$', '^(\\d{1,3}\\.){3}\\d{1,3}$', '^[A-Z]{2}-\\d{4,}$'])(
    'T11 says nothing about %s',
    async (pattern) => {
      expect(await warningsOf(pattern)).toEqual([])
    },
  )

  it('T11 says nothing about the formats of zod', async () => {
    const object = z.object({ email: z.email(), ip: z.ipv4(), at: z.iso.datetime(), id: z.ulid() })
    const warnings: string[] = []
    await warnOfPatterns('It', z.toJSONSchema(object) as never, (text) => warnings.push(text))
    expect(warnings).toEqual([])
  })

  it('is not given if redos-detector is not installed', async () => {
    const absent = async () => undefined
    const warn = () => expect.unreachable()
    await warnOfPatterns('It', { pattern: '^(a+)+$' }, warn, absent)
  })

  it.each([
    [true, 1],
    [false, 0],
  ])('T11 is logged by a server with dev: %s', async (dev, count) => {
    const messages: string[] = []
    const log = (event: object) => 'message' in event && messages.push(String(event.message))
    const server = createServer({ name: 'dev', version: '1.0.0', dev, log })
    const input = z.object({ a: z.string().regex(/^(a+)+$/) })
    server.tool('evil', { input }, () => 'done')
    const warnings = () => messages.filter((text) => text.includes('The input schema of tool "evil"'))
    // Nothing says that no warning will come.
    if (!dev) await new Promise((resolve) => setTimeout(resolve, 1500))
    await expect.poll(warnings).toHaveLength(count)
    await server.close()
  })
})
