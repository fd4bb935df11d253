/** Options that do not exist, and null: refused in one sentence, with the option that was probably meant. */

import { createRestateStore } from '@rondo/restate'
import { type Context, createServer, generateKey, type LogEvent, type ServerOptions } from 'rondo'
import { type Client, connect } from 'rondo/client'
import { oauth } from 'rondo/client/oauth'
import { introspection, jwt, oauthResource } from 'rondo/oauth'
import { otel } from 'rondo/otel'
import { createPostgresStore } from 'rondo/postgres'
import { createRondo } from 'rondo/sdk'
import { createSqliteStore } from 'rondo/sqlite'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

const base = { name: 'options', version: '1', keys: generateKey(), log: 'off' } as const
const make = (options: object) => createServer({ ...base, ...options } as ServerOptions)

describe('createServer', () => {
  it.each<[object, string]>([
    [{ limit: {} }, 'createServer has no option "limit". Did you mean "limits"?'],
    [{ allowedOrigin: [] }, 'createServer has no option "allowedOrigin". Did you mean "allowedOrigins"?'],
    [{ port: 1 }, 'port is an option of listen, not of createServer: server.listen({ port })'],
    [{ health: '/a' }, 'health is an option of listen, not of createServer: server.listen({ health })'],
    [{ dev: 'false' }, 'createServer: dev must be true or false; got "false".'],
    [{ logAuthorErrors: 'no' }, 'createServer: logAuthorErrors must be true or false; got "no".'],
    [
      { addressHeader: true },
      'createServer: addressHeader must be the name of a header, such as x-forwarded-for; got true.',
    ],
    ...['a.example', ['https://a.example'], ['*.a.example'], ['a.example/mcp'], [7]].map(
      (allowedHosts): [object, string] => [
        { allowedHosts },
        "allowedHosts must be a list of names such as 'mcp.example.com' or 'mcp.example.com:8443', without a scheme, or '*'; " +
          `got ${JSON.stringify([allowedHosts].flat()[0])}.`,
      ],
    ),
    [
      { allowedOrigins: ['https://a.example/app'] },
      "allowedOrigins must be a list of origins such as 'https://app.example.com', without a path, or '*'; got \"https://a.example/app\".",
    ],
    [{ limits: null }, 'createServer: limits is null. Leave it out for its default.'],
    [{ tasks: null }, 'createServer: tasks is null. Leave it out for its default.'],
    [{ sessions: null }, 'createServer: sessions is null. Leave it out for its default.'],
    [{ store: null }, 'createServer: store is null. Leave it out for its default.'],
    [{ tasks: { leaseMS: 1 } }, 'createServer: tasks has no option "leaseMS". Did you mean "leaseMs"?'],
    [{ tasks: true }, 'createServer: tasks takes an object with options; got a boolean.'],
    [{ limits: { maxRound: 1 } }, 'createServer: limits has no option "maxRound". Did you mean "maxRounds"?'],
    [{ sessions: { idle: 1 } }, 'createServer: sessions has no option "idle".'],
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

  it('takes names of hosts as a variable has them: with blanks, or none', async () => {
    const server = make({ allowedHosts: ' a.example, B.example:81'.split(','), allowedOrigins: [''] })
    const status = async (host: string, origin?: string) => {
      const headers = { 'content-type': 'application/json', ...(origin && { origin }) }
      return (await server.fetch(new Request(`http://${host}/`, { method: 'POST', body: '{', headers })))
        .status
    }
    expect(await status('a.example')).toBe(400)
    expect(await status('b.example:81')).toBe(400)
    expect(await status('b.example')).toBe(403)
    expect(await status('a.example', 'https://c.example')).toBe(403)
    expect(() =>
      make({ allowedHosts: ['*', '[::1]:80'], allowedOrigins: ['*', 'null', 'c.example'] }),
    ).not.toThrow()
  })

  it('accepts an option that is undefined', () => {
    expect(() => make({ limits: undefined, limit: undefined })).not.toThrow()
  })
})

const PORT = 'listen: port must be a whole number from 0 to 65535, where 0 chooses a free port'

describe('listen', () => {
  it('accepts a port as text, as an environment variable has it', async () => {
    const server = make({})
    const listening = await server.listen({ port: '0' as never, signals: false, rejections: false })
    expect(listening.port).toBeGreaterThan(0)
    await server.close()
  })

  it('refuses to serve again after it was closed, instead of refusing every call', async () => {
    const server = make({})
    const listening = await server.listen({ port: 0, signals: false, rejections: false })
    await listening.close()
    await expect(server.listen({ port: 0 })).rejects.toThrow('create another one to listen again')
  })

  it('checks its options before it opens the store', async () => {
    let opened = 0
    const ready = async (): Promise<void> => {
      opened += 1
    }
    const store = { ...createMemoryStore(), ready }
    const server = make({ store })
    await expect(server.listen({ port: 99_999 })).rejects.toThrow(PORT)
    expect(opened).toBe(0)
    await server.listen({ port: 0, signals: false, rejections: false })
    expect(opened).toBeGreaterThan(0)
    await server.close()
  })

  it.each(['http', '99999', '-1'])(
    'refuses PORT=%s in the environment, unless it has a port',
    async (value) => {
      vi.stubEnv('PORT', value)
      onTestFinished(() => void vi.unstubAllEnvs())
      const sentence =
        'The environment variable PORT must be a whole number from 0 to 65535, where 0 chooses a free port'
      const server = make({})
      const quiet = { signals: false, rejections: false }
      await expect(server.listen(quiet)).rejects.toThrow(new TypeError(`${sentence}; got "${value}".`))
      await server.listen({ ...quiet, port: 0 })
      vi.stubEnv('PORT', '0')
      expect((await server.listen(quiet)).port).not.toBe(3000)
      await server.close()
    },
  )

  it.each<[unknown, string]>([
    [{ prot: 3000 }, 'listen has no option "prot". Did you mean "port"?'],
    [{ port: null }, 'listen: port is null. Leave it out for its default.'],
    [3000, 'listen takes an object with options; got a number.'],
    [{ drainDelay: 5 }, 'listen has no option "drainDelay". Did you mean "drainDelayMs"?'],
    [{ port: 99_999 }, `${PORT}; got 99999.`],
    [{ port: -1 }, `${PORT}; got -1.`],
    [{ port: 80.5 }, `${PORT}; got 80.5.`],
    [{ port: Number.NaN }, `${PORT}; got NaN. Is an environment variable missing?`],
    [{ port: 'http' }, `${PORT}; got "http".`],
    [{ port: '' }, `${PORT}; got "".`],
    [{ graceMs: -1 }, 'listen: graceMs must be a number of 0 or more; got -1.'],
    [{ path: 'mcp' }, `path must begin with a slash, such as /mcp, or be '*' for every path; got "mcp".`],
  ])('refuses %j: %s', async (options, message) => {
    await expect(make({}).listen(options as never)).rejects.toThrow(new TypeError(message))
  })
})

describe('a declaration', () => {
  const go = () => 'went'
  it.each<[string, () => void, string]>([
    [
      'a tool',
      () => make({}).tool('go', { inputSchema: {} } as never, go),
      'Tool "go" has no option "inputSchema". Did you mean "input"?',
    ],
    [
      'a tool with another mode of tasks',
      () => make({}).tool('go', { task: 'yes' } as never, go),
      `task of tool "go" must be 'auto', 'always' or 'never'; got "yes".`,
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

describe('an argument of a handler', () => {
  const wrong: Readonly<Record<string, [(ctx: Context) => Promise<unknown>, string]>> = {
    effect: [
      (ctx) => ctx.effect('pay', () => 1, { onec: true } as never),
      'The effect "pay" has no option "onec". Did you mean "once"?',
    ],
    confirm: [
      (ctx) => ctx.confirm('sure', 'Sure?', { withn: 5 } as never),
      'The question "sure" has no option "withn". Did you mean "within"?',
    ],
    sample: [
      (ctx) => ctx.sample('idea', { messages: [], maxTokens: 1 }, { timeout: 5 } as never),
      'The question "idea" has no option "timeout".',
    ],
    hook: [
      (ctx) => ctx.hook('paid', { shema: {} } as never),
      'The hook "paid" has no option "shema". Did you mean "schema"?',
    ],
  }
  it.each(Object.entries(wrong))('is refused in the log: %s', async (name, [use, message]) => {
    const faults: string[] = []
    const log = (event: LogEvent): void => {
      if (event.event === 'fault') faults.push((event.error as Error).message)
    }
    const server = make({ log })
    server.tool(name, {}, async (_args, ctx) => String(await use(ctx)))
    const answers = { elicitation: () => expect.unreachable(), sampling: () => expect.unreachable() }
    const client = await connect(server, { answers: answers as never })
    expect(await client.callTool(name, {})).toMatchObject({ isError: true })
    expect(faults).toEqual([message])
    await client.close()
    await server.close()
  })
})

describe('connect', () => {
  it.each<[unknown, string]>([
    [{ answer: {} }, 'connect has no option "answer". Did you mean "answers"?'],
    [{ timeout: 5 }, 'connect has no option "timeout". Did you mean "timeoutMs"?'],
    [{ maxRounds: -1 }, 'connect: maxRounds must be a number of 0 or more; got -1.'],
    [
      { timeoutMs: Number.NaN },
      'connect: timeoutMs must be a number of 0 or more; got NaN. Is an environment variable missing?',
    ],
    [{ headers: null }, 'connect: headers is null. Leave it out for its default.'],
    [null, 'connect takes an object with options; got null.'],
  ])('refuses %j: %s', async (options, message) => {
    await expect(connect(make({}), options as never)).rejects.toThrow(new TypeError(message))
  })
})

describe('a client', () => {
  it.each<[string, (client: Client) => Promise<unknown>, string]>([
    [
      'callTool',
      (client) => client.callTool('go', {}, { timeout: 5 } as never),
      'callTool has no option "timeout". Did you mean "timeoutMs"?',
    ],
    [
      'callTool with null',
      (client) => client.callTool('go', {}, { signal: null } as never),
      'callTool: signal is null. Leave it out for its default.',
    ],
    [
      'getPrompt',
      (client) => client.getPrompt('go', {}, { onprogress: () => {} } as never),
      'getPrompt has no option "onprogress". Did you mean "onProgress"?',
    ],
    [
      'readResource',
      (client) => client.readResource('go://x', { refresh: true } as never),
      'readResource has no option "refresh". Did you mean "fresh"?',
    ],
    [
      'start',
      (client) => client.start({ method: 'tools/call', name: 'go' }, { accept: ['form'] } as never),
      'start has no option "accept". Did you mean "accepts"?',
    ],
    [
      'round',
      (client) => client.round({ method: 'tools/call', name: 'go' }, { state: 'x' } as never),
      'round has no option "state".',
    ],
    ...(['listTools', 'listPrompts', 'listResources', 'listResourceTemplates', 'discover'] as const).map(
      (name): [string, (client: Client) => Promise<unknown>, string] => [
        name,
        (client) => client[name]({ timeout: 5 } as never),
        `${name} has no option "timeout". Did you mean "timeoutMs"?`,
      ],
    ),
    [
      'complete',
      (client) => client.complete({} as never, { refresh: true } as never),
      'complete has no option "refresh". Did you mean "fresh"?',
    ],
  ])('refuses in a call: %s', async (_, call, message) => {
    const server = make({})
    server.tool('go', {}, () => 'went')
    const client = await connect(server)
    await expect(call(client)).rejects.toThrow(new TypeError(message))
    expect(await client.callTool('go', {}, { signal: undefined, timeoutMs: 60_000 })).toMatchObject({
      content: [{ text: 'went' }],
    })
    await client.close()
    await server.close()
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

  const rondo = () => createRondo(mounted as never)
  const go = () => ({}) as never
  it.each<[string, () => unknown, string]>([
    [
      'a tool',
      () => rondo().tool(go, { tasks: 'auto' } as never),
      'rondo.tool has no option "tasks". Did you mean "task"?',
    ],
    [
      'a tool whose options come first, as on a server of ours',
      () => rondo().tool({ description: 'x' } as never, go as never),
      'rondo.tool takes an object with options; got a function.',
    ],
    [
      'a prompt',
      () => rondo().prompt(go, { onc: true } as never),
      'rondo.prompt has no option "onc". Did you mean "once"?',
    ],
    [
      'a prompt as a task',
      () => rondo().prompt(go, { task: 'auto' } as never),
      'rondo.prompt has no option "task".',
    ],
    [
      'a resource',
      () => rondo().resource(go, { scope: ['a'] } as never),
      'rondo.resource has no option "scope". Did you mean "scopes"?',
    ],
    [
      'null',
      () => rondo().tool(go, { version: null } as never),
      'rondo.tool: version is null. Leave it out for its default.',
    ],
  ])('refuses in a callback: %s', (_, declare, message) => {
    expect(declare).toThrow(new TypeError(message))
  })

  it('accepts a callback with every option', () => {
    const store = createMemoryStore()
    const full = { version: '1', once: true, scopes: ['a'], task: 'auto', taskTtlMs: 1_000, taskPollMs: 100 }
    expect(() => createRondo({ ...mounted, store } as never).tool(go, full as never)).not.toThrow()
  })

  it('says what it needs if there are no options at all', () => {
    expect(() => createRondo(undefined as never)).toThrow(/^createRondo needs an audience/)
    expect(() => createRondo(null as never)).toThrow(/^createRondo takes an object with options; got null\.$/)
  })
})

describe('stores, telemetry and tokens', () => {
  const file = ':memory:'
  const ingress = 'http://127.0.0.1:8080'
  it.each<[string, () => unknown, string]>([
    [
      'createSqliteStore',
      () => createSqliteStore({ fil: file } as never),
      'createSqliteStore has no option "fil". Did you mean "file"?',
    ],
    [
      'createSqliteStore with the word of another library',
      () => createSqliteStore({ path: file } as never),
      'createSqliteStore has no option "path". Did you mean "file"?',
    ],
    [
      'createSqliteStore with a text',
      () => createSqliteStore(file as never),
      "createSqliteStore needs the path of a file: createSqliteStore({ file: './data/tasks.db' })",
    ],
    [
      'createSqliteStore, second option',
      () => createSqliteStore({ file, readonly: true } as never),
      'createSqliteStore has no option "readonly". Did you mean "readOnly"?',
    ],
    [
      'createPostgresStore',
      () => createPostgresStore({ connectionstring: 'postgres://a/b' } as never),
      'createPostgresStore has no option "connectionstring". Did you mean "connectionString"?',
    ],
    [
      'createPostgresStore with an address',
      () => createPostgresStore({ url: 'postgres://a/b' } as never),
      'createPostgresStore has no option "url". Did you mean "connectionString"?',
    ],
    [
      'createPostgresStore with null',
      () => createPostgresStore({ connectionString: null } as never),
      'createPostgresStore: connectionString is null. Leave it out for its default.',
    ],
    [
      'createPostgresStore with a text',
      () => createPostgresStore('postgres://a/b' as never),
      'createPostgresStore takes an object with options; got a string.',
    ],
    [
      'createRestateStore',
      () => createRestateStore({ ingress, nameSpace: 'a' } as never),
      'createRestateStore has no option "nameSpace". Did you mean "namespace"?',
    ],
    [
      'createRestateStore, its endpoint',
      () => createRestateStore({ ingress, endpoint: { port: 9080, identityKey: [] } } as never),
      'createRestateStore: endpoint has no option "identityKey". Did you mean "identityKeys"?',
    ],
    ['otel', () => otel({ poll: true } as never), 'otel has no option "poll". Did you mean "polls"?'],
    [
      'oauthResource, where it would ask for no scope at all',
      () => oauthResource({ resource: 'https://a.example/mcp', issuers: [], scope: ['a'] } as never),
      'oauthResource has no option "scope". Did you mean "scopes"?',
    ],
    [
      'jwt',
      () => jwt({ algorithm: ['ES256'] } as never),
      'jwt has no option "algorithm". Did you mean "algorithms"?',
    ],
    [
      'introspection',
      () => introspection({ client: { id: 'a', secret: 'b' }, endpoints: 'x' } as never),
      'introspection has no option "endpoints". Did you mean "endpoint"?',
    ],
    [
      'introspection without a secret',
      () => introspection({ client: { id: 'a' } } as never),
      "introspection needs this server's credentials: introspection({ client: { id, secret } })",
    ],
    ...['jwt', jwt, {}].map((tokens): [string, () => unknown, string] => [
      `tokens that are ${typeof tokens}`,
      () =>
        oauthResource({ resource: 'https://a.example/mcp', issuers: ['https://b.example'], tokens } as never),
      'tokens must be jwt(…), introspection(…), or a function from a token to its claims.',
    ]),
    ...['RS256', ['HS256'], ['none']].map((algorithms): [string, () => unknown, string] => [
      `algorithms that are ${JSON.stringify(algorithms)}`,
      () => jwt({ algorithms } as never),
      `jwt: algorithms must be a list of algorithms with public keys, such as RS256; got ${JSON.stringify(algorithms)}.`,
    ]),
    [
      'an issuer under another name',
      () =>
        oauthResource({
          resource: 'https://a.example/mcp',
          issuers: [{ url: 'https://b.example' }],
        } as never),
      'An entry of issuers must be a URL, or { issuer, jwks } with the URL as issuer.',
    ],
    [
      'oauth',
      () => oauth({ clientname: 'a' } as never),
      'oauth has no option "clientname". Did you mean "clientName"?',
    ],
  ])('are refused: %s', (_, create, message) => {
    expect(create).toThrow(new TypeError(message))
  })
})
