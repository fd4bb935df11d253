import { describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import type { PeerAnswer } from '../protocol/call.ts'
import { OpenQuestions } from './question.ts'

/** A session with room for one call. */
function start() {
  const state = { parked: 0, sent: [] as unknown[], scopes: [] as unknown[] }
  const takers = new Map<string, (answer: PeerAnswer) => void>()
  const host = {
    expect(take: (answer: PeerAnswer) => void, named?: { id: string }, scopes?: readonly string[]) {
      const id = named?.id ?? `id ${takers.size + 1}`
      takers.set(id, take)
      state.scopes.push(scopes)
      return id
    },
    forget: (id: string) => void takers.delete(id),
    park(bytes: number) {
      if (state.parked > 0) return false
      state.parked += bytes
      return true
    },
    unpark(bytes: number) {
      state.parked -= bytes
    },
  }
  const send = (json: string): void => void state.sent.push(JSON.parse(json))
  const terms = { until: 5_000, bytes: 100, handed: true, scopes: ['read'], send }
  const open = OpenQuestions.park(host, terms) as OpenQuestions
  const answer = (id: string, given: PeerAnswer): void => takers.get(id)?.(given)
  return { state, takers, host, terms, open, answer }
}

const result = (content: unknown): PeerAnswer => ({ kind: 'result', result: content }) as PeerAnswer
const error = (code: number, message: string): PeerAnswer => ({ kind: 'error', code, message }) as PeerAnswer
const withdrawn = (requestId: string) => ({
  jsonrpc: '2.0',
  method: 'notifications/cancelled',
  params: { requestId, reason: expect.any(String) },
})

describe('open questions', () => {
  it('question 1, question 3: wait until every one is answered, and count as parked meanwhile', async () => {
    const { state, takers, host, terms, open, answer } = start()
    const [a, b] = [open.expect('a', undefined), open.expect('b', { id: 'own' })]
    expect([a, b]).toEqual(['id 1', 'own'])
    expect(state.scopes).toEqual([['read'], ['read']])
    expect([open.until, open.handed, open.isOpen, state.parked]).toEqual([5_000, true, true, 100])
    expect(OpenQuestions.park(host, terms)).toBeUndefined()
    answer(a, result(1))
    expect([open.isOpen, takers.size]).toEqual([true, 1])
    open.take(a, result('late'))
    answer(b, result(2))
    expect([open.isOpen, takers.size, state.parked]).toEqual([false, 0, 0])
    open.refuse(new RondoError('INPUT_TIMEOUT'))
    expect(await open.ended).toEqual({ kind: 'answers', answers: { a: 1, b: 2 } })
    expect([state.parked, state.sent]).toEqual([0, []])
  })

  it('question 2: are withdrawn when one is answered with an error', async () => {
    const { state, takers, open, answer } = start()
    const [a, b] = [open.expect('a', undefined), open.expect('b', undefined)]
    answer(a, error(-1, 'No time'))
    const refused = await open.ended
    expect(refused).toMatchObject({ kind: 'refused', error: { code: 'INPUT_FAILED' } })
    expect(refused).not.toHaveProperty('unable')
    expect(String(refused.kind === 'refused' && refused.error)).toContain('"a": No time')
    expect([state.sent, takers.size]).toEqual([[withdrawn(b)], 0])
  })

  it('name the question whose method the client does not know, and the code of an error without a message', async () => {
    const { open, answer } = start()
    answer(open.expect('a', undefined), error(-32601, ''))
    const refused = await open.ended
    expect(refused).toMatchObject({ kind: 'refused', unable: 'a' })
    expect(String(refused.kind === 'refused' && refused.error)).toContain('"a": error -32601')
  })

  it('end without a word if another instance continues the call', async () => {
    const { state, open } = start()
    open.expect('a', undefined)
    open.end({ kind: 'left' }, true)
    expect(await open.ended).toEqual({ kind: 'left' })
    expect([state.parked, state.sent]).toEqual([0, []])
  })

  it('end with the answers that are there when the time of one is up', async () => {
    const { state, open, answer } = start()
    const [a, b] = [open.expect('a', undefined), open.expect('b', undefined)]
    const enough = new AbortController()
    open.heed(enough.signal, new AbortController().signal)
    answer(a, result(1))
    enough.abort()
    expect(await open.ended).toEqual({ kind: 'answers', answers: { a: 1 } })
    expect(state.sent).toEqual([withdrawn(b)])
    const late = start()
    late.open.expect('a', undefined)
    late.open.heed(enough.signal)
    expect(await late.open.ended).toEqual({ kind: 'answers', answers: {} })
  })

  it('end with an error when nobody needs the answers any more', async () => {
    const { open } = start()
    open.expect('a', undefined)
    open.heed()
    const signal = new AbortController()
    open.heed(new AbortController().signal, signal.signal)
    signal.abort()
    expect(await open.ended).toMatchObject({ kind: 'refused', error: { code: 'INPUT_TIMEOUT' } })
  })
})
