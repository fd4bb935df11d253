/** `rondo login`, `rondo logout` and `rondo whoami`: the login at a protected server. */

import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import type { GivenClient, OAuthOptions, StoredLogin } from 'rondo/client/oauth'
import { canonical, oneLine } from 'rondo/internal'
import { JSON_OPTION } from '../call-setup.ts'
import {
  type Command,
  CommandError,
  type Invocation,
  type Options,
  readPort,
  usageError,
} from '../command-line.ts'
import { bindingKey, createLoginStore, homeOf } from '../home.ts'
import { formatTable, type Io, print, printJson, sayTime, tell } from '../io.ts'
import { readTarget } from '../words.ts'

export const loginCommand: Command = {
  name: 'login',
  usage: '<url>',
  summary: 'logs in at a protected server; the other commands then use this login',
  details: [
    'Prints a link on stderr and waits until you have logged in there. The login is kept in the folder of the command. A login with more scopes keeps the earlier ones. Secrets of a client are read from variables, since other users can see command lines.',
  ],
  json: '`{ "status": "logged in", "server", "issuer", "user", "clientId", "scopes", … }`, never a token',
  see: 'docs/guide/call-a-protected-server.md',
  options: {
    open: { type: 'boolean', help: 'opens the link in your browser' },
    scope: { type: 'string', multiple: true, value: 'SCOPE', help: 'requests this scope as well' },
    issuer: { type: 'string', value: 'URL', help: 'the authorization server, if the server names several' },
    'client-id': { type: 'string', value: 'ID', help: 'a client that you registered there' },
    'client-secret-env': {
      type: 'string',
      value: 'NAME',
      help: 'the variable with the secret of that client; needs --issuer',
    },
    'client-metadata': {
      type: 'string',
      value: 'URL',
      help: 'the URL of a client id metadata document',
    },
    'client-credentials': { type: 'boolean', help: 'logs in as that client itself, without a person' },
    'workload-token-file': {
      type: 'string',
      value: 'FILE',
      help: 'logs in as this workload, with the token in a file; needs --client-id and --issuer',
    },
    'workload-token-env': {
      type: 'string',
      value: 'NAME',
      help: 'logs in as this workload, with the token in a variable; needs --client-id and --issuer',
    },
    'identity-provider': {
      type: 'string',
      value: 'URL',
      help: "logs in at your company's identity provider; needs --client-id and --issuer",
    },
    'idp-client-id': {
      type: 'string',
      value: 'ID',
      help: 'the client that you registered at the identity provider',
    },
    'idp-client-secret-env': {
      type: 'string',
      value: 'NAME',
      help: 'the variable with the secret of that client',
    },
    dpop: { type: 'boolean', help: 'binds the tokens to a key of this command' },
    port: { type: 'string', value: 'PORT', help: 'the port of the redirect (default: any free one)' },
    localhost: { type: 'boolean', help: 'redirects to localhost instead of 127.0.0.1' },
    timeout: { type: 'string', value: 'SECONDS', help: 'how long to wait for you (default: 600)' },
    ...JSON_OPTION,
  },
  async run(invocation) {
    const { io, options } = invocation
    const server = serverIn(invocation)
    const { oauth, loopback } = await import('rondo/client/oauth')
    const timeout = options.number('timeout')
    const port = readPort(options)
    const login = loopback({
      ...(port !== undefined && { port }),
      ...(options.flag('localhost') && { host: 'localhost' as const }),
      onLink({ url, issuer }) {
        tell(io, `Log in at ${oneLine(issuer)} with this link:\n\n  ${url.href}\n`)
        if (options.flag('open'))
          void openLink(url).then(
            (isOpened) => isOpened || tell(io, 'Cannot open a browser here; open the link yourself.'),
          )
        io.status.start('waiting for the login')
      },
    })
    const auth = oauth({
      store: createLoginStore(homeOf(io)),
      now: io.now,
      clientName: 'rondo',
      scopes: options
        .list('scope')
        .flatMap((one) => one.split(/\s+/))
        .filter(Boolean),
      issuer: options.text('issuer'),
      client: clientOf(io, options),
      clientMetadataUrl: options.text('client-metadata'),
      grant: await grantOf(io, options, login),
      ...(options.flag('dpop') && { dpop: await bindingKey(homeOf(io)) }),
      ...(timeout !== undefined && { loginTimeoutMs: timeout * 1000 }),
      login,
    })
    const stored = await auth.login(server, { signal: io.signal }).finally(() => io.status.stop())
    if (options.flag('json')) printJson(io, { status: 'logged in', ...shown(stored) })
    else
      tell(
        io,
        `Logged in at ${server.href}${stored.user === undefined ? '' : ` as ${oneLine(stored.user)}`}.`,
      )
    return 'done'
  },
}

export const logoutCommand: Command = {
  name: 'logout',
  usage: '<url>',
  summary: 'forgets the login at a server, and revokes it if possible',
  options: { all: { type: 'boolean', help: 'forgets all logins; no URL is needed' }, ...JSON_OPTION },
  async run(invocation) {
    const { io, options } = invocation
    const store = createLoginStore(homeOf(io))
    const all = options.flag('all')
    const servers = all ? store.list().map(({ server }) => server) : [canonical(serverIn(invocation))]
    const done = []
    for (const server of servers) done.push({ server, revoked: await logOut(io, server) })
    if (options.flag('json')) printJson(io, { status: 'logged out', logins: done })
    else
      for (const { server, revoked } of done)
        tell(
          io,
          `Logged out at ${oneLine(server)}${revoked ? '' : '; the login was not revoked at the authorization server'}.`,
        )
    return 'done'
  },
}

/** Forgets the login whatever happens; returns whether it was revoked. */
async function logOut(io: Io, server: string): Promise<boolean> {
  const store = createLoginStore(homeOf(io))
  const { oauth } = await import('rondo/client/oauth')
  try {
    if (store.load(server) === undefined) throw new CommandError('stored', `There is no login at ${server}`)
    return await oauth({ store, now: io.now }).logout(server)
  } catch (error) {
    const known = error instanceof CommandError && error.message.startsWith('There is no login')
    store.remove(server)
    if (known) throw error
    return false
  }
}

export const whoamiCommand: Command = {
  name: 'whoami',
  usage: '[url]',
  summary: 'shows your logins, without their tokens',
  details: [
    'Each line has the server, the user if the authorization server names one, the issuer, the scopes, and whether the login is valid.',
  ],
  json: '`{ "logins" }`',
  options: JSON_OPTION,
  async run(invocation) {
    const { io, words, options } = invocation
    const store = createLoginStore(homeOf(io))
    const logins = words.length === 0 ? store.list() : [one(store.load(canonical(serverIn(invocation))))]
    if (options.flag('json')) printJson(io, { logins: logins.map(shown) })
    else if (logins.length === 0) tell(io, 'There is no login. Log in with "rondo login <url>".')
    else print(io, formatTable(logins.map((login) => row(login, io.now()))))
    return 'done'
  },
}

function one(login: StoredLogin | undefined): StoredLogin {
  if (login === undefined) throw new CommandError('stored', 'There is no login at this server')
  return login
}

function row(login: StoredLogin, now: number): string[] {
  const { server, user, issuer, scopes } = login
  return [
    oneLine(server),
    oneLine(user ?? '(name unknown)'),
    oneLine(issuer),
    scopes.map(oneLine).join(' '),
    stateOf(login, now),
  ]
}

function stateOf({ tokens, grant }: StoredLogin, now: number): string {
  if (tokens === undefined) return 'ended; log in again'
  if (tokens.expiresAt === undefined || tokens.expiresAt > now) return 'valid'
  const renewable = tokens.refreshToken !== undefined || grant !== undefined
  return renewable ? 'refreshed at the next call' : 'expired; log in again'
}

/** The public part of a login: no token and no secret. */
function shown({ server, resource, issuer, client, scopes, tokens, user }: StoredLogin) {
  return {
    ...{ server, resource, issuer, user, clientId: client.id, scopes, granted: tokens?.granted },
    active: tokens !== undefined,
    bound: tokens?.keyThumbprint !== undefined,
    expiresAt: tokens?.expiresAt === undefined ? undefined : sayTime(tokens.expiresAt),
    refreshable: tokens?.refreshToken !== undefined,
  }
}

function serverIn({ io, words, rest }: Invocation): URL {
  const [text, ...others] = words
  if (text === undefined || rest !== undefined) throw usageError('Name a server by its URL')
  if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
  const target = readTarget(text, io.cwd)
  if (target.kind !== 'url') throw usageError('Only a server with a URL has logins')
  return new URL(target.url)
}

function clientOf({ env }: Io, options: Options): GivenClient | undefined {
  const [id, name, issuer] = [
    options.text('client-id'),
    options.text('client-secret-env'),
    options.text('issuer'),
  ]
  if (id === undefined) {
    if (name !== undefined || options.flag('client-credentials'))
      throw usageError('Name the client: --client-id ID')
    return undefined
  }
  if (name === undefined) {
    if (options.flag('client-credentials'))
      throw usageError('--client-credentials needs --client-secret-env NAME')
    return { id, ...(issuer !== undefined && { issuer }) }
  }
  const secret = env[name]
  if (!secret) throw usageError(`--client-secret-env ${name}: the variable has no value`)
  if (issuer === undefined)
    throw usageError('A client with a secret needs --issuer URL, so that the secret is sent nowhere else')
  return { id, secret, issuer }
}

/** The way to get a token that the options choose. */
async function grantOf(
  { env, cwd }: Io,
  options: Options,
  login: NonNullable<OAuthOptions['login']>,
): Promise<NonNullable<OAuthOptions['grant']>> {
  const { enterprise, workload } = await import('rondo/client/oauth')
  const [file, variable] = [options.text('workload-token-file'), options.text('workload-token-env')]
  const provider = options.text('identity-provider')
  const wanted = [file, variable, provider, options.flag('client-credentials') || undefined]
  if (wanted.filter((one) => one !== undefined).length > 1)
    throw usageError(
      'Choose one of --client-credentials, --workload-token-file, --workload-token-env and --identity-provider',
    )
  if (file ?? variable ?? provider) {
    if (options.text('client-id') === undefined || options.text('issuer') === undefined)
      throw usageError('Name the client and its authorization server: --client-id ID --issuer URL')
  }
  // The other commands may run in another folder.
  if (file !== undefined) return workload({ file: resolve(cwd, file) })
  if (variable !== undefined)
    return {
      ...workload({ token: () => env[variable] ?? '' }),
      stored: () => ({ kind: 'workload', env: variable }),
    }
  if (provider === undefined)
    return options.flag('client-credentials') ? 'client_credentials' : 'authorization_code'
  const [id, name] = [options.text('idp-client-id'), options.text('idp-client-secret-env')]
  if (id === undefined) throw usageError('Name the client at the identity provider: --idp-client-id ID')
  const secret = name === undefined ? undefined : env[name]
  if (name !== undefined && !secret)
    throw usageError(`--idp-client-secret-env ${name}: the variable has no value`)
  return enterprise({ issuer: provider, client: { id, ...(secret && { secret }) }, login })
}

const OPENED_MS = 3_000

/** Opens a link without a shell. `BROWSER` names another program to open it with. Returns whether it was opened. */
export function openLink(url: URL, env: Io['env'] = {}): Promise<boolean> {
  const [command = '', ...args] = env.BROWSER
    ? [env.BROWSER]
    : process.platform === 'darwin'
      ? ['open']
      : process.platform === 'win32'
        ? ['rundll32', 'url.dll,FileProtocolHandler']
        : ['xdg-open']
  const child = spawn(command, [...args, url.href], { stdio: 'ignore', detached: true })
  child.unref()
  return new Promise((resolve) => {
    child.on('error', () => resolve(false))
    child.on('exit', (code) => resolve(code === 0))
    // A browser that stays in the foreground has been opened.
    setTimeout(() => resolve(true), OPENED_MS).unref()
  })
}
