import { describe, expect, it } from 'vitest'
import { readArgs } from './words.ts'

const schema = {
  type: 'object',
  properties: {
    text: { type: 'string' },
    whole: { type: 'integer' },
    share: { type: 'number' },
    sure: { type: 'boolean' },
    maybe: { type: ['integer', 'null'] },
    either: { anyOf: [{ type: 'integer' }, { $ref: '#/$defs/word' }] },
    tags: { type: 'array', items: { type: 'string' } },
    sizes: { type: 'array', items: { type: 'integer' } },
    place: { $ref: '#/$defs/place' },
    'a.b': { type: 'integer' },
    kind: { enum: ['1', '2'] },
    free: {},
  },
  $defs: {
    word: { type: 'string' },
    place: { type: 'object', properties: { city: { type: 'string' }, floor: { type: 'integer' } } },
    loop: { $ref: '#/$defs/loop' },
  },
} as const

describe('arguments of a command line', () => {
  it.each([
    ['text=5', { text: '5' }],
    ['text=', { text: '' }],
    ['text=a=b', { text: 'a=b' }],
    ['whole=-5', { whole: -5 }],
    ['share=0.5', { share: 0.5 }],
    ['sure=Yes', { sure: true }],
    ['sure=false', { sure: false }],
    ['maybe=null', { maybe: null }],
    ['either=7', { either: 7 }],
    ['either=seven', { either: 'seven' }],
    ['tags=a,b', { tags: ['a', 'b'] }],
    ['tags=["a,b"]', { tags: ['a,b'] }],
    ['tags=', { tags: [] }],
    ['sizes=1,2', { sizes: [1, 2] }],
    ['place.city=Ulm', { place: { city: 'Ulm' } }],
    ['place.floor=2', { place: { floor: 2 } }],
    ['place={"city":"Ulm"}', { place: { city: 'Ulm' } }],
    ['a.b=3', { 'a.b': 3 }],
    ['kind=1', { kind: '1' }],
    ['free=7', { free: 7 }],
    ['free=null', { free: null }],
    ['free=seven', { free: 'seven' }],
    ['text:=[1]', { text: [1] }],
  ])('%s is read as %j', (word, args) => expect(readArgs([word], schema)).toEqual(args))

  it.each([
    'whole=1.5',
    'whole=',
    'whole=9007199254740993',
    'share=x',
    'sure=constructor',
    'sizes=1,x',
    'place=5',
  ])('%s is refused', (word) => expect(() => readArgs([word], schema)).toThrow(/must be/))

  it('are merged: lists are extended and objects get more properties', () => {
    const words = ['tags=a', 'tags=b', 'place.city=Ulm', 'place.floor=1', 'text=x']
    expect(readArgs(words, schema, { text: 'y', share: 1, place: { floor: 9 } })).toEqual({
      tags: ['a', 'b'],
      place: { city: 'Ulm', floor: 1 },
      text: 'x',
      share: 1,
    })
  })

  it('T9 cannot reach a prototype', () => {
    expect(() => readArgs(['__proto__.x=1'], schema)).toThrow(/cannot be named __proto__/)
    expect(readArgs(['constructor.x=1'], schema)).toEqual({ constructor: { x: 1 } })
  })

  it('a schema with circular references does not hang', () => {
    const circle = {
      properties: { x: { $ref: '#/$defs/loop' }, y: { anyOf: [{ $ref: '#/$defs/tree' }] } },
      $defs: { loop: { $ref: '#/$defs/loop' }, tree: { anyOf: [{ $ref: '#/$defs/tree' }] } },
    }
    expect(readArgs(['x=1', 'y=2'], circle)).toEqual({ x: 1, y: 2 })
  })
})
