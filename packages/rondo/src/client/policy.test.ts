import { describe, expect, it } from 'vitest'
import type { InputRequests } from '../protocol/wire.ts'
import { compileForm } from '../tool/schema/form.ts'
import { ask, begin } from './pending.ts'
import {
  allowUrlHosts,
  applyPolicies,
  maxRoundsPerServer,
  noSecretsInForms,
  type PolicyRound,
  refuseSampling,
} from './policy.ts'

const form = (properties: object = {}, message = 'm') =>
  ({
    method: 'elicitation/create',
    params: { mode: 'form', message, requestedSchema: { properties } },
  }) as const
const url = (address: string) =>
  ({ method: 'elicitation/create', params: { mode: 'url', message: '', url: address } }) as const
const sampling = { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 } } as const

function asked(questions: InputRequests, name = 's') {
  const beginning = { id: 'x', server: { target: 't', name }, protocolVersion: 'v', now: 0 }
  const begun = begin({ method: 'tools/call', name: 'tool', arguments: { n: 1 } }, beginning)
  return ask(begun, { questions, state: 'abc', now: 0, tookMs: 0 }, { maxRounds: 10 })
}

describe('policies', () => {
  it('C13 see the whole round before anybody is asked', async () => {
    const seen: PolicyRound[] = []
    await applyPolicies(asked({ a: form() }), [(round) => void seen.push(round)])
    expect(seen).toEqual([
      {
        server: { target: 't', name: 's' },
        request: { method: 'tools/call', name: 'tool', arguments: { n: 1 } },
        round: 1,
        questions: { a: form() },
        stateLength: 3,
      },
    ])
  })

  it('C13 can refuse a round, and later policies are not called', async () => {
    let later = 0
    const policies = [() => ({ kind: 'refuse', reason: 'not here' }) as const, () => void later++]
    await expect(applyPolicies(asked({ a: form() }), policies)).rejects.toThrowError(
      /INPUT_REFUSED.*not here/,
    )
    expect(later).toBe(0)
  })

  it('C13 can rewrite a question, and answer another', async () => {
    const done = await applyPolicies(asked({ a: form(), b: form() }), [
      () => ({ kind: 'rewrite', questions: { a: form({}, 'Careful: m') } }),
      ({ questions }) => {
        expect(questions.a?.params).toMatchObject({ message: 'Careful: m' })
        return { kind: 'rewrite', answers: { b: { action: 'decline' } } }
      },
    ])
    expect(done.questions.a?.params).toMatchObject({ message: 'Careful: m' })
    expect(done.answers).toEqual({ b: { action: 'decline' } })
  })

  it('cannot invent questions or change their kind', async () => {
    const more = await applyPolicies(asked({ a: form() }), [
      () => ({ kind: 'rewrite', questions: { other: form() } }),
    ])
    expect(Object.keys(more.questions)).toEqual(['a'])
    const changed = applyPolicies(asked({ a: form() }), [
      () => ({ kind: 'rewrite', questions: { a: sampling } }),
    ])
    await expect(changed).rejects.toThrowError(TypeError)
  })
})

describe('built-in policies', () => {
  const verdict = async (policy: Parameters<typeof applyPolicies>[1][number], questions: InputRequests) =>
    applyPolicies(asked(questions), [policy]).then(
      () => 'allowed',
      (error: Error) => error.message,
    )

  it('C13 refuse sampling', async () => {
    expect(await verdict(refuseSampling(), { a: form(), b: sampling })).toMatch(/INPUT_REFUSED.*"b"/)
    expect(await verdict(refuseSampling(), { a: form() })).toBe('allowed')
  })

  it.each([
    ['https://example.com/x', 'allowed'],
    ['https://login.acme.dev/x', 'allowed'],
    ['https://a.b.acme.dev/x', 'allowed'],
    ['https://acme.dev/x', 'refused'],
    ['https://evilacme.dev/x', 'refused'],
    ['https://example.com.evil.dev/', 'refused'],
  ])('C13 allow URL hosts: %s is %s', async (address, expected) => {
    const policy = allowUrlHosts(['Example.com', '*.acme.dev'])
    const got = await verdict(policy, { a: url(address) })
    expect(got === 'allowed' ? 'allowed' : 'refused').toBe(expected)
  })

  it.each([
    'password',
    'db_password',
    'apiKey',
    'api_key',
    'API key',
    'clientSecret',
    'access-token',
    'pin',
    'credentials',
  ])('C13 T5 refuse forms that ask for secrets: %s', async (name) => {
    expect(await verdict(noSecretsInForms(), { a: form({ [name]: { type: 'string' } }) })).toMatch(
      /INPUT_REFUSED/,
    )
    const titled = { a: form({ x: { type: 'string', title: name } }) }
    expect(await verdict(noSecretsInForms(), titled)).toMatch(/INPUT_REFUSED/)
  })

  it.each(['name', 'spinner', 'tokenize', 'secretary', 'keyboard', 'opinion', 'passenger'])(
    'allow a field named %s',
    async (name) => {
      expect(await verdict(noSecretsInForms(), { a: form({ [name]: { type: 'string' } }) })).toBe('allowed')
    },
  )

  it('T5 refuse exactly the fields that a Rondo server refuses to ask for', async () => {
    const names = [
      'tokenCount',
      'jwt',
      'apiKey',
      'clientSecret',
      'backupCodes',
      'maxTokens',
      'cardNumber',
      'city',
    ]
    const fields = names.flatMap((name): [string, object][] => [
      [name, { type: 'string' }],
      [name, { type: 'boolean' }],
      ['x', { type: 'string', title: name }],
    ])
    const refused: string[] = []
    for (const [name, schema] of fields) {
      const mayAsk = (() => {
        try {
          return compileForm({ type: 'object', properties: { [name]: schema } }) !== undefined
        } catch {
          return false
        }
      })()
      const mayShow = (await verdict(noSecretsInForms(), { a: form({ [name]: schema }) })) === 'allowed'
      expect([name, schema, mayShow]).toEqual([name, schema, mayAsk])
      if (!mayShow) refused.push(name)
    }
    expect(refused).toEqual([
      'jwt',
      'x',
      'apiKey',
      'x',
      'clientSecret',
      'x',
      'backupCodes',
      'x',
      'cardNumber',
      'x',
    ])
  })

  it('C13 limit the rounds of one server over all its calls', async () => {
    let now = 0
    const policy = maxRoundsPerServer(2, { withinMs: 100, now: () => now })
    const round = (name: string) => applyPolicies(asked({ a: form() }, name), [policy])
    await round('one')
    await round('one')
    await expect(round('one')).rejects.toThrowError(/INPUT_REFUSED/)
    await round('other')
    now = 101
    await round('one')
  })
})
