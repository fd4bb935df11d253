import { expect, it } from 'vitest'
import { ringOf } from '../../../../test/support/seal-fixtures.ts'
import { generateKey, parseKeys } from './key-ring.ts'
import { tagsOf } from './tag.ts'

const [old, next] = [generateKey('old'), generateKey('next')]
const tagOf = (keys: string, ...value: Parameters<typeof tagsOf> extends [unknown, ...infer V] ? V : never) =>
  tagsOf(parseKeys(keys), ...value)

it('a tag is the same in every process that has the key, and names nothing that a tool may be called', () => {
  const [tag] = tagOf(old, 'tool', 'refund')
  expect(tagOf(old, 'tool', 'refund')).toEqual([tag])
  expect(tag).toMatch(/^~[\w-]{22}$/)
})

it('a tag stays the same in later releases, which look for those that this one has stored', () => {
  expect(tagsOf(ringOf('a'), 'tool', 'refund')).toEqual(['~eVc5nx6R8iAZ2QObGFx3OQ'])
})

it('a tag differs for another value, kind or key', () => {
  const [tag] = tagOf(old, 'tool', 'refund')
  const others = [
    ...tagOf(old, 'tool', 'refunds'),
    ...tagOf(old, 'label', 'refund'),
    ...tagOf(next, 'tool', 'refund'),
  ]
  expect(new Set([tag, ...others]).size).toBe(4)
})

it('a ring has the tags of all its keys, that of the key that seals first', () => {
  const [a] = tagOf(old, 'tool', 'refund')
  const [b] = tagOf(next, 'tool', 'refund')
  expect(tagOf(`${next},${old}`, 'tool', 'refund')).toEqual([b, a])
})
