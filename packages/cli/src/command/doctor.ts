/**
 * `rondo doctor`: examines any MCP server: which revision it speaks, how it refuses invalid requests, and what an attacker
 * can do with its `requestState`.
 */

import { RondoError } from 'rondo'
import { hasRounds, LATEST_VERSION } from 'rondo/internal'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, type Invocation, readLine, sayError, usageError } from '../command-line.ts'
import {
  CONNECT_OPTIONS,
  type Connection,
  openConnection,
  readBearer,
  requestHeaders,
  toTarget,
} from '../connection.ts'
import { type ExaminedCall, examineState, examineTasks } from '../doctor/examine.ts'
import {
  attempt,
  CHECKS,
  type CheckId,
  type DoctorFinding,
  fail,
  type Probe,
  printFindings,
  probeHttp,
  probeStdio,
  skip,
  warn,
} from '../doctor/probe.ts'
import { checkIdentity, checkLists, checkOlder, checkProtocol } from '../doctor/protocol.ts'
import { storedAuth } from '../home.ts'
import type { Io } from '../io.ts'
import { type NamedTarget, takeTarget } from '../words.ts'

export const doctorCommand: Command = {
  name: 'doctor',
  usage: '<server> [--tool NAME name=value …]',
  summary: 'examines a server: its protocol, and how it protects its state',
  details: [
    'To examine the state, it needs a tool that asks. It calls the tool several times, sometimes with other arguments, and declines every question, so use a test system. If the first question comes without a state, it is answered once, with made-up values that match its schema ("no" for a yes or no), and the next one is declined. Without `--tool`, read-only tools are tried. If the tool becomes a task, the task is cancelled.',
    'If the server does not speak 2026-07-28, or `--revision` names an older revision, its handshake and its sessions are examined instead.',
    'Each check ends as pass, warn, fail or skip; a problem comes with a line of advice. A response that breaks the protocol fails the check that received it, and the examination continues. The exit code is 1 if a check failed or, with `--strict`, warned.',
  ],
  table: { name: 'check', rows: CHECKS },
  json: '`{ "pass", "warn", "fail", "skip", "findings" }`: the counts, and `{ "id", "verdict", "detail", "advice" }` for each check',
  options: {
    tool: { type: 'string', value: 'NAME', help: 'a tool that asks; its arguments follow the server' },
    other: {
      type: 'string',
      multiple: true,
      value: 'NAME=VALUE',
      help: 'other valid arguments for that tool',
    },
    'other-tool': { type: 'string', value: 'NAME', help: 'another tool that asks' },
    'other-tool-arg': {
      type: 'string',
      multiple: true,
      value: 'NAME=VALUE',
      help: 'arguments for that other tool',
    },
    'other-bearer': {
      type: 'string',
      value: 'TOKEN|env:NAME',
      help: 'a token that was issued for another server',
    },
    'other-header': { type: 'string', multiple: true, value: 'NAME:VALUE', help: 'headers of another user' },
    wait: {
      type: 'string',
      value: 'SECONDS',
      help: 'sends a state after this time, to see whether it has expired',
    },
    strict: { type: 'boolean', help: 'treats a warning as a failure' },
    ...JSON_OPTION,
    ...CONNECT_OPTIONS,
  },
  async run(invocation) {
    const { io, options } = invocation
    const { target, words } = takeTarget(invocation.words, invocation.rest, io.cwd)
    if (words.length > 0 && options.text('tool') === undefined)
      throw usageError('Name the tool that these arguments are for: --tool NAME')
    const findings = await examine(invocation, target, words)
    printFindings(io, findings, options.flag('json'))
    const bad = options.flag('strict') ? ['fail', 'warn'] : ['fail']
    return findings.some(({ verdict }) => bad.includes(verdict)) ? 'failed' : 'done'
  },
}

/** Examines a server for the console, with options as they would be typed. */
export async function examineUrl(
  io: Io,
  url: string,
  args: readonly string[],
): Promise<readonly DoctorFinding[]> {
  const line = readLine(args, doctorCommand.options)
  return examine({ io, ...line }, { kind: 'url', url }, line.words)
}

/** The revision that is examined in full; only here do rounds have a state. */

async function examine(
  invocation: Invocation,
  target: NamedTarget,
  words: readonly string[],
): Promise<readonly DoctorFinding[]> {
  const { io } = invocation
  io.status.start('examining')
  try {
    const opened = await tryConnect(invocation, target)
    if ('verdict' in opened) return [opened, ...(await examineNeededLogin(invocation, target))]
    const { client, close } = opened
    const call = { invocation, target, client, words }
    if (client.protocolVersion !== LATEST_VERSION) return await examineOlder(call).finally(close)
    const probe = await openProbe(invocation, target)
    const part = (id: CheckId, check: () => Promise<DoctorFinding | readonly DoctorFinding[]>) =>
      attempt(id, io.signal, check)
    try {
      return [
        ...checkIdentity(client),
        ...(await part('protocol', () => checkProtocol(probe))),
        ...(await examineLogin(invocation, target)),
        ...(await part('tools', () => checkLists(client, probe))),
        ...(await part('state', () => examineState({ ...call, probe }))),
        ...(await part('task', () => examineTasks(call))),
      ]
    } finally {
      await Promise.all([probe.close(), close()])
    }
  } finally {
    io.status.stop()
  }
}

/** Connects. A server that responds, but not as the protocol requires, is a finding and not an error. */
async function tryConnect(
  { io, options }: Invocation,
  target: NamedTarget,
): Promise<Connection | DoctorFinding> {
  try {
    return await openConnection(io, target, options, { tasks: false })
  } catch (error) {
    const isThere =
      error instanceof RondoError && error.code.startsWith('PEER_') && error.code !== 'PEER_UNREACHABLE'
    if (io.signal.aborted || !isThere) throw error
    if (error.code === 'PEER_HTTP' || error.code === 'PEER_LOGIN') {
      const { advice } = sayError(error, target.kind === 'url' ? target.url : undefined)
      return fail(
        'era',
        error.message,
        advice ?? 'Log in, or pass the credentials it requires with --bearer.',
      )
    }
    return fail('era', error.message, `Serve revision ${LATEST_VERSION}.`)
  }
}

/** A server that speaks only an older revision gets a warning, unless the user named that revision. */
async function examineOlder(call: ExaminedCall): Promise<readonly DoctorFinding[]> {
  const { invocation, target, client } = call
  const { signal } = invocation.io
  const { protocolVersion: version } = client
  const better = `Serve ${LATEST_VERSION} too: there a call can wait for an answer without a session.`
  const found = checkIdentity(client).map((finding) =>
    finding.id === 'era' && invocation.options.text('revision') === undefined
      ? warn('era', `the server speaks ${version}, not ${LATEST_VERSION}`, better)
      : finding,
  )
  return [
    ...found,
    ...(await attempt('handshake', signal, () =>
      checkOlder({ version, open: () => openProbe(invocation, target) }),
    )),
    ...(await examineNeededLogin(invocation, target)),
    ...(hasRounds(version)
      ? await attempt('state', signal, () => examineState(call))
      : [skip('state', `servers of ${version} send no state`)]),
  ]
}

/** Examines how a server with a URL asks for a login. */
async function examineLogin(
  { io, options }: Invocation,
  target: NamedTarget,
): Promise<readonly DoctorFinding[]> {
  if (target.kind !== 'url') return []
  const headers = requestHeaders(io, options)
  const auth = await storedAuth(io, target, headers)
  const others = Object.entries(headers).filter(([name]) => name.toLowerCase() !== 'authorization')
  const probe = probeHttp(target.url, Object.fromEntries(others))
  const foreign = options.text('other-bearer')
  const exam = {
    ...{ server: new URL(target.url), probe, tokens: auth?.tokenFor },
    ...(foreign !== undefined && { foreign: readBearer(io, '--other-bearer', foreign) }),
  }
  const { checkAuthorization } = await import('../doctor/authorization.ts')
  return attempt('auth', io.signal, () => checkAuthorization(exam)).finally(() => probe.close())
}

/** Examines the login of a server that requires one, and reports nothing about other servers. */
async function examineNeededLogin(
  invocation: Invocation,
  target: NamedTarget,
): Promise<readonly DoctorFinding[]> {
  const found = await examineLogin(invocation, target)
  return found.filter(({ id, verdict }) => id !== 'auth' || verdict !== 'skip')
}

async function openProbe({ io, options }: Invocation, target: NamedTarget): Promise<Probe> {
  const found = toTarget(io, target, options, () => {})
  if (typeof found !== 'string') return probeStdio(found)
  const headers = requestHeaders(io, options)
  const auth = await storedAuth(io, target, headers)
  const { origin, pathname } = new URL(found)
  const login = auth?.open(new URL(found))
  return probeHttp(found, headers, undefined, async (method) => {
    const credential = await login?.credential({ method, url: `${origin}${pathname}` }, io.signal)
    return credential?.headers ?? {}
  })
}
