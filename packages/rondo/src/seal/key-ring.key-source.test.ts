import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ringOf } from '../../../../test/support/seal-fixtures.ts'
import {
  developmentKeys,
  generateKey,
  keysFromEnv,
  keysFromFile,
  keysFromFunction,
  resolveKeys,
} from './key-ring.ts'

describe('keysFromEnv', () => {
  it('reads the value', async () => {
    expect((await keysFromEnv(generateKey('a')).load()).names).toEqual(['a'])
  })

  it.each(['', '  '])('says how to set RONDO_KEYS when it is %j', (value) => {
    expect(() => keysFromEnv(value).load()).toThrow(/RONDO_KEYS is not set.*npx rondo keys new/s)
  })
})

describe('keys that cannot be used', () => {
  const again = /"npx rondo keys new" makes a key\.$/
  it.each([
    ['RONDO_KEYS', () => resolveKeys(undefined, { env: { RONDO_KEYS: 'key1:short' } })],
    ['RONDO_KEYS', () => keysFromEnv('nokey').load()],
    ['The option keys', () => resolveKeys('key1:@')],
  ])('the error names the bad key and the way to make one: %s', (origin, resolve) => {
    expect(resolve).toThrow(new RegExp(`^${origin} cannot be used: .*`))
    expect(resolve).toThrow(again)
  })
})

describe('keysFromFile', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rondo-keys-'))
  })
  afterAll(() => rm(folder, { recursive: true }))

  it('B9 reloads a file that has changed, and returns the same ring while it has not', async () => {
    const path = join(folder, 'keys')
    const old = generateKey('old')
    await writeFile(path, `${old}\n`)
    const source = keysFromFile(path)
    const first = await source.load()
    expect(await source.load()).toBe(first)
    await writeFile(path, `${generateKey('new')}\n${old}\n`)
    expect((await source.load()).names).toEqual(['new', 'old'])
  })

  it('B9 keeps the old keys when the new file is invalid, and reports the error', async () => {
    const path = join(folder, 'bad')
    await writeFile(path, generateKey('old'))
    const reports: string[] = []
    let fire = () => {}
    const reported = new Promise<void>((resolve) => {
      const holder = resolveKeys(keysFromFile(path, { refreshMs: 1 }), {
        warn(message) {
          reports.push(message)
          expect(holder.ring.names).toEqual(['old'])
          resolve()
        },
        schedule(task) {
          fire = task
          return () => {}
        },
      })
      void holder.ready()?.then(async () => {
        await writeFile(path, 'half a fi')
        fire()
      })
    })
    await reported
    expect(reports).toEqual([
      expect.stringMatching(
        /^The keys could not be refreshed: The key file .* cannot be used: Key 1 has no name/,
      ),
    ])
  })

  it('rejects if the file does not exist', async () => {
    await expect(keysFromFile(join(folder, 'none')).load()).rejects.toThrow(/ENOENT/)
  })

  it.each([0, -1, Number.NaN])('refuses to refresh every %d ms', (refreshMs) => {
    expect(() => keysFromFile('x', { refreshMs })).toThrow(TypeError)
    expect(() => keysFromFunction(() => '', { refreshMs })).toThrow(TypeError)
  })
})

describe('keysFromFunction', () => {
  it('accepts a ring or its text, synchronously or not', async () => {
    const ring = ringOf('a')
    expect(await keysFromFunction(() => ring).load()).toBe(ring)
    expect(await keysFromFunction(async () => ring, { refreshMs: 7 }).load()).toBe(ring)
    expect((await keysFromFunction(async () => generateKey('b')).load()).names).toEqual(['b'])
    expect(keysFromFunction(() => ring)).not.toHaveProperty('refreshMs')
  })
})

describe('developmentKeys', () => {
  it('generates a key and says so in one message', async () => {
    const warnings: string[] = []
    const ring = await developmentKeys({ nodeEnv: undefined, warn: (text) => warnings.push(text) }).load()
    expect(ring.names).toEqual(['development'])
    expect(warnings).toHaveLength(1)
    // One line: a host shows it at every start.
    expect(warnings[0]).toMatch(
      /^Rondo generated a key.*RONDO_KEYS is not set.*no other instance.*rondo keys new.*$/,
    )
    expect(warnings[0]).not.toContain(ring.mint.secret.export().toString('base64'))
  })

  it('throws in production, and says what to do', () => {
    const warnings: string[] = []
    const source = developmentKeys({ nodeEnv: 'production', warn: (text) => warnings.push(text) })
    expect(() => source.load()).toThrow(/keys in production.*npx rondo keys new.*RONDO_KEYS=/s)
    expect(warnings).toEqual([])
  })
})

describe('resolveKeys', () => {
  const env = { RONDO_KEYS: generateKey('env'), NODE_ENV: 'production' }
  const quiet = { warn: () => {} }

  it.each([
    ['text', generateKey('given'), env, 'given'],
    ['a ring', ringOf('given'), env, 'given'],
    ['a source', { load: () => ringOf('given') }, env, 'given'],
    ['nothing, with RONDO_KEYS set', undefined, env, 'env'],
    ['nothing, with nothing set', undefined, {}, 'development'],
    ['nothing, with RONDO_KEYS empty', undefined, { RONDO_KEYS: '' }, 'development'],
  ])('given %s uses the right keys at once', (_name, keys, environment, expected) => {
    const holder = resolveKeys(keys, { ...quiet, env: environment })
    expect(holder.ready()).toBeUndefined()
    expect(holder.ring.names).toEqual([expected])
  })

  it('refuses invalid text at definition time', () => {
    expect(() => resolveKeys('nonsense', { env: {} })).toThrow(TypeError)
    expect(() => resolveKeys('', { env })).toThrow(TypeError)
    expect(() => resolveKeys(undefined, { env: { RONDO_KEYS: 'nonsense' } })).toThrow(TypeError)
  })

  it('rejects in ready() if there are no keys in production', async () => {
    const holder = resolveKeys(undefined, { ...quiet, env: { NODE_ENV: 'production' } })
    await expect(holder.ready()).rejects.toThrow(/production/)
  })
})
