import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  answerHook,
  answerSlots,
  closeSlots,
  decodeSlots,
  encodeSlots,
  givenAnswers,
  isStorable,
  mergeSlots,
  openInputs,
  openSlots,
} from './input-slots.ts'

const key = fc
  .oneof(fc.constantFrom('a', 'b', '__proto__', 'constructor', '0'), fc.string())
  .filter(isStorable)
const texts = fc.array(fc.tuple(key, fc.base64String())).map((pairs) => new Map(pairs))

describe('input slots', () => {
  it('E3 take one answer each, and only to an open request', () => {
    fc.assert(
      fc.property(texts, fc.array(texts), (requests, deliveries) => {
        fc.pre(requests.size > 0)
        let slots = openSlots([], requests)
        const first = new Map<string, string>()
        for (const answers of deliveries) {
          slots = answerSlots(slots, answers).slots
          for (const [name, answer] of answers)
            if (requests.has(name) && !first.has(name)) first.set(name, answer)
        }
        expect(new Map(givenAnswers(slots))).toEqual(first)
        expect(openInputs(slots).size).toBe(requests.size - first.size)
        expect([...openInputs(slots).keys(), ...first.keys()].sort()).toEqual([...requests.keys()].sort())
      }),
    )
  })

  it('D3 E3 never use a key twice', () => {
    const slots = openSlots([], new Map([['a', '1']]))
    expect(() => openSlots(slots, new Map([['a', '2']]))).toThrow(/already used/)
    const answered = answerSlots(slots, new Map([['a', 'x']])).slots
    expect(() => openSlots(answered, new Map([['a', '2']]))).toThrow(/already used/)
    expect(openSlots(answered, new Map([['b', '2']]))).toHaveLength(2)
  })

  it('refuse keys that no database can store', () => {
    for (const odd of ['a\0', '\ud800', '\udc00b'])
      expect(() => openSlots([], new Map([[odd, '']]))).toThrow(/NUL/)
  })

  it('count an answer that is already stored with the same bytes as taken', () => {
    const slots = openSlots([], new Map([['a', '1']]))
    const mine = new Map([['a', 'x']])
    const once = answerSlots(slots, mine)
    expect(answerSlots(once.slots, mine)).toMatchObject({ taken: 1, changed: false, open: 0 })
    expect(answerSlots(once.slots, new Map([['a', 'y']]))).toMatchObject({ taken: 0, changed: false })
  })

  it('survive encoding and decoding', () => {
    fc.assert(
      fc.property(texts, texts, (requests, answers) => {
        fc.pre(requests.size > 0)
        const all = openSlots(openSlots([], requests, 'offer'), requests, 'hook')
        const { slots } = answerSlots(all, answers)
        const [first] = requests.keys()
        const some = closeSlots(slots, [{ key: first ?? '', role: 'hook' }])
        expect(some.filter(({ kind }) => kind === 'closed')).toHaveLength(1)
        expect(decodeSlots(encodeSlots(some))).toEqual(some)
      }),
    )
    expect(decodeSlots(null)).toEqual([])
  })

  it('G3 show hooks to no client, and let no client answer one', () => {
    const slots = openSlots(openSlots([], new Map([['a', 'r']])), new Map([['a', 'secret']]), 'hook')
    expect(openInputs(slots)).toEqual(new Map([['a', 'r']]))
    const { slots: answered, open } = answerSlots(slots, new Map([['a', 'x']]))
    expect(open).toBe(0)
    expect(answered.map(({ kind }) => kind)).toEqual(['answered', 'open'])
    expect(givenAnswers(answerHook(answered, 'a', 'event').slots)).toEqual(new Map([['a', 'x']]))
  })

  it('G3 G5 wake a task for its last question, for an offer, and for an event', () => {
    const questions = openSlots(
      [],
      new Map([
        ['a', 'r'],
        ['b', 'r'],
      ]),
    )
    const all = openSlots(openSlots(questions, new Map([['o', 'r']]), 'offer'), new Map([['h', 'r']]), 'hook')
    const first = answerSlots(all, new Map([['a', '1']]))
    expect(first.wakes).toBe(false)
    expect(answerSlots(first.slots, new Map([['b', '2']])).wakes).toBe(true)
    expect(answerSlots(all, new Map([['o', '1']])).wakes).toBe(true)
    expect(answerHook(all, 'h', 'event').wakes).toBe(true)
  })

  it('G4 keep an answer that arrived while the worker changed its slots', () => {
    const slots = openSlots(
      [],
      new Map([
        ['a', 'r'],
        ['b', 'r'],
      ]),
    )
    const stored = answerSlots(slots, new Map([['a', '1']])).slots
    const closing = closeSlots(openSlots(slots, new Map([['c', 'r']])), [{ key: 'a' }, { key: 'b' }])
    const { slots: merged, news } = mergeSlots(stored, closing)
    expect(merged.map(({ kind }) => kind)).toEqual(['answered', 'closed', 'open'])
    expect(news).toBe(true)
    expect(mergeSlots(stored, stored).news).toBe(false)
  })

  it('P19 change no prototype', () => {
    const slots = openSlots([], new Map([['__proto__', 'r']]))
    const { slots: next } = answerSlots(slots, new Map([['__proto__', '{"polluted":1}']]))
    expect(givenAnswers(decodeSlots(encodeSlots(next))).get('__proto__')).toBe('{"polluted":1}')
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
  })
})

it('storable text is well-formed and has no NUL', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => isStorable(text) === !text.includes('\0')))
  for (const text of ['', 'a', '😀', 'a\uD83D\uDE00b']) expect(isStorable(text)).toBe(true)
  for (const text of ['\0', '\uD83D', '\uDE00', '\uDE00\uD83D', 'a\uD83Db'])
    expect(isStorable(text)).toBe(false)
})
