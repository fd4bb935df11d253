/** Options that do not exist, and null: refused in one sentence, with the option that was probably meant. */

import { createServer, generateKey, type ServerOptions } from 'rondo'
import { connect } from 'rondo/client'
import { createRondo } from 'rondo/sdk'
import { describe, expect, it } from 'vitest'

const base = { name: 'options', version: '1', keys: generateKey(), log: 'off' } as const
const make = (options: object) => createServer({ ...base, ...options } as ServerOptions)

describe('createServer', () => {
  it.each<[object, string]>([
    [{ limit: {} }, 'createServer has no option "limit". Did you mean "limits"?'],
    [{ allowedOrigin: [] }, 'createServer has no option "allowedOrigin". Did you mean "allowedOrigins"?'],
    [{ port: 1 }, 'createServer has no option "port".'],
    [{ limits: null }, 'createServer: limits is null. Leave it out for its default.'],
    [{ tasks: null }, 'createServer: tasks is null. Leave it out for its default.'],
    [{ sessions: null }, 'createServer: sessions is null. Leave it out for its default.'],
    [{ store: null }, 'createServer: store is null. Leave it out for its default.'],
    [{ tasks: { leaseMS: 1 } }, 'createServer: tasks has no option "leaseMS". Did you mean "leaseMs"?'],
    [{ tasks: true }, 'createServer: tasks takes an object with options; got a boolean.'],
    [{ limits: { maxRound: 1 } }, 'There is no limit named "maxRound". Did you mean "maxRounds"?'],
    [{ sessions: { idle: 1 } }, 'There is no session option named "idle".'],
  ])('refuses %j: %s', (options, message) => {
    expect(() => make(options)).toThrow(new TypeError(message))
  })

  it('says what it needs if there are no options at all', () => {
    const sentence = /^createServer needs a name and a version/
    expect(() => createServer(undefined as never)).toThrow(sentence)
    expect(() => createServer(null as never)).toThrow(
      /^createServer takes an object with options; got null\.$/,
    )
  })

  it('accepts an option that is undefined', () => {
    expect(() => make({ limits: undefined, limit: undefined })).not.toThrow()
  })
})

describe('listen', () => {
  it.each<[unknown, string]>([
    [{ prot: 3000 }, 'listen has no option "prot". Did you mean "port"?'],
    [{ port: null }, 'listen: port is null. Leave it out for its default.'],
    [3000, 'listen takes an object with options; got a number.'],
    [{ drainDelay: 5 }, 'listen has no option "drainDelay". Did you mean "drainDelayMs"?'],
  ])('refuses %j: %s', async (options, message) => {
    await expect(make({}).listen(options as never)).rejects.toThrow(new TypeError(message))
  })
})

describe('what a server declares', () => {
  const go = () => 'went'
  it.each<[string, () => void, string]>([
    [
      'a tool',
      () => make({}).tool('go', { inputSchema: {} } as never, go),
      'Tool "go" has no option "inputSchema". Did you mean "input"?',
    ],
    [
      'a tool without options',
      () => make({}).tool('go', go as never, undefined as never),
      'Tool "go" takes an object with options; got a function.',
    ],
    [
      'a tool with null',
      () => make({}).tool('go', { output: null } as never, go),
      'Tool "go": output is null. Leave it out for its default.',
    ],
    [
      'a prompt',
      () => make({}).prompt('go', { completes: {} } as never, go),
      'Prompt "go" has no option "completes". Did you mean "complete"?',
    ],
    [
      'a resource',
      () => make({}).resource('go://x', { name: 'x', mimetype: 'a/b' } as never, go),
      'Resource "go://x" has no option "mimetype". Did you mean "mimeType"?',
    ],
    [
      'a template',
      () => make({}).template('go://{x}', { name: 'x', size: 1 } as never, go),
      'Template "go://{x}" has no option "size".',
    ],
  ])('is refused: %s', (_, declare, message) => {
    expect(declare).toThrow(new TypeError(message))
  })
})

describe('connect', () => {
  it.each<[unknown, string]>([
    [{ answer: {} }, 'connect has no option "answer". Did you mean "answers"?'],
    [{ timeout: 5 }, 'connect has no option "timeout". Did you mean "timeoutMs"?'],
    [{ headers: null }, 'connect: headers is null. Leave it out for its default.'],
    [null, 'connect takes an object with options; got null.'],
  ])('refuses %j: %s', async (options, message) => {
    await expect(connect(make({}), options as never)).rejects.toThrow(new TypeError(message))
  })
})

describe('stdio', () => {
  it.each<[unknown, string]>([
    [{ graceMS: 5 }, 'stdio has no option "graceMS". Did you mean "graceMs"?'],
    [{ port: 3000 }, 'stdio has no option "port".'],
    [{ principal: null }, 'stdio: principal is null. Leave it out for its default.'],
    [null, 'stdio takes an object with options; got null.'],
  ])('refuses %j: %s', async (options, message) => {
    await expect(make({}).stdio(options as never)).rejects.toThrow(new TypeError(message))
  })
})

describe('nodeHandler', () => {
  it.each<[unknown, string]>([
    [{ maxBodybytes: 5 }, 'nodeHandler has no option "maxBodybytes". Did you mean "maxBodyBytes"?'],
    [{ maxBodyBytes: null }, 'nodeHandler: maxBodyBytes is null. Leave it out for its default.'],
    [null, 'nodeHandler takes an object with options; got null.'],
  ])('refuses %j: %s', (options, message) => {
    expect(() => make({}).nodeHandler(options as never)).toThrow(new TypeError(message))
  })
})

describe('createRondo', () => {
  const mounted = { audience: 'options', keys: generateKey(), log: 'off' }
  it.each<[object, string]>([
    [{ principals: 1 }, 'createRondo has no option "principals". Did you mean "principal"?'],
    [{ port: 1 }, 'createRondo has no option "port".'],
    [{ store: null }, 'createRondo: store is null. Leave it out for its default.'],
    [{ tasks: { leaseMS: 1 } }, 'createRondo: tasks has no option "leaseMS". Did you mean "leaseMs"?'],
  ])('refuses %j: %s', (options, message) => {
    expect(() => createRondo({ ...mounted, ...options } as never)).toThrow(new TypeError(message))
  })

  it('says what it needs if there are no options at all', () => {
    expect(() => createRondo(undefined as never)).toThrow(/^createRondo needs an audience/)
    expect(() => createRondo(null as never)).toThrow(/^createRondo takes an object with options; got null\.$/)
  })
})
