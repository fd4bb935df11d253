import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { ringOf } from '../../../../test/support/seal-fixtures.ts'
import {
  developmentKeys,
  generateKey,
  keysFromEnv,
  keysFromFile,
  keysFromFunction,
  resolveKeys,
} from './key-ring.ts'

afterEach(() => {
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
})

describe('keysFromEnv', () => {
  it('reads the value, by default that of RONDO_KEYS', async () => {
    expect((await keysFromEnv(generateKey('a')).load()).names).toEqual(['a'])
    vi.stubEnv('RONDO_KEYS', generateKey('b'))
    expect((await keysFromEnv().load()).names).toEqual(['b'])
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

describe('the interval of a refresh', () => {
  it('is 30 s for a file by default, and as long as the caller says', () => {
    expect(keysFromFile('x').refreshMs).toBe(30_000)
    expect(keysFromFile('x', { refreshMs: 5 }).refreshMs).toBe(5)
    expect(keysFromFunction(() => '', { refreshMs: 7 }).refreshMs).toBe(7)
  })
})

describe('keysFromFunction', () => {
  it('accepts a ring or its text, synchronously or not', async () => {
    const ring = ringOf('a')
    expect(await keysFromFunction(() => ring).load()).toBe(ring)
    expect(await keysFromFunction(async () => ring, { refreshMs: 7 }).load()).toBe(ring)
    expect((await keysFromFunction(async () => generateKey('b')).load()).names).toEqual(['b'])
    expect(keysFromFunction(() => ring)).not.toHaveProperty('refreshMs')
    await expect(keysFromFunction(() => 'nokey').load()).rejects.toThrow(
      /^The text of the function for keys cannot be used: Key 1 has no name/,
    )
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

  it('asks NODE_ENV, and warns on the console', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    vi.stubEnv('NODE_ENV', 'production')
    expect(() => developmentKeys().load()).toThrow(/keys in production/)
    expect(warn).not.toHaveBeenCalled()
    vi.stubEnv('NODE_ENV', 'development')
    await developmentKeys().load()
    expect(warn).toHaveBeenCalledOnce()
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
  const local = { RONDO_LOCAL_KEYS: generateKey('local') }
  const quiet = { warn: () => {} }

  it.each([
    ['text', generateKey('given'), env, 'given'],
    ['a ring', ringOf('given'), env, 'given'],
    ['a source', { load: () => ringOf('given') }, env, 'given'],
    ['nothing, with RONDO_KEYS set', undefined, env, 'env'],
    ['nothing, with a local key beside RONDO_KEYS', undefined, { ...env, ...local, NODE_ENV: '' }, 'env'],
    ['nothing, with a local key', undefined, local, 'local'],
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

  it.each([{}, local])('rejects in ready() if there are no keys in production: %#', async (others) => {
    const holder = resolveKeys(undefined, { ...quiet, env: { ...others, NODE_ENV: 'production' } })
    await expect(holder.ready()).rejects.toThrow(/production/)
  })

  it.each([5, null, true])('refuses %j in place of keys', (keys) => {
    expect(() => resolveKeys(keys as never)).toThrow(/keys must be text/)
  })

  it('uses the environment of the process by default', () => {
    vi.stubEnv('RONDO_KEYS', generateKey('process'))
    const holder = resolveKeys(undefined)
    holder.ready()
    expect(holder.ring.names).toEqual(['process'])
  })

  it('B9 reports a refresh that fails on the console, unless the caller wants to know', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const errors: unknown[] = []
    let failing = false
    const refreshes: (() => void)[] = []
    const source = {
      refreshMs: 5,
      load() {
        if (failing) throw 'kms is down'
        return ringOf('a')
      },
    }
    const schedule = (task: () => void) => {
      refreshes.push(task)
      return () => {}
    }
    resolveKeys(source, { schedule }).ready()
    resolveKeys(source, { schedule, onError: (error) => errors.push(error) }).ready()
    failing = true
    for (const refresh of refreshes.splice(0)) refresh()
    await new Promise((resolve) => setImmediate(resolve))
    expect(warn.mock.calls).toEqual([['The keys could not be refreshed: kms is down']])
    expect(errors).toEqual(['kms is down'])
  })
})
