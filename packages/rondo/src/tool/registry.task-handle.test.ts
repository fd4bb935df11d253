import { describe, expect, it } from 'vitest'
import { orTaskHandle } from './registry.ts'
import { compileSchema } from './schema/schema.ts'

const HANDLE = { task: { taskId: 'a', status: 'working', next: 'wait' } }

function accepts(schema: object | undefined, value: unknown): unknown {
  if (schema === undefined) throw new Error('There is no schema')
  return (compileSchema(schema as never, 'output').validate(value) as { ok: boolean }).ok
}

describe('orTaskHandle', () => {
  it('G6 allows what the tool returns, and the handle of a task, and nothing else', () => {
    const schema = orTaskHandle({ type: 'object', properties: { n: { type: 'number' } }, required: ['n'] })
    expect(accepts(schema, { n: 1 })).toBe(true)
    expect(accepts(schema, HANDLE)).toBe(true)
    expect(accepts(schema, { n: 'x' })).toBe(false)
    expect(accepts(schema, { task: { taskId: 1 } })).toBe(false)
  })

  it('G6 keeps definitions where references find them', () => {
    const schema = orTaskHandle({
      type: 'object',
      properties: { n: { $ref: '#/$defs/count' } },
      required: ['n'],
      $defs: { count: { type: 'number' } },
    })
    expect(accepts(schema, { n: 1 })).toBe(true)
    expect(accepts(schema, { n: 'x' })).toBe(false)
    expect(accepts(schema, HANDLE)).toBe(true)
  })

  it.each([{ $ref: '#' }, { $ref: '#/properties/n' }, { $ref: 'other.json' }, { $id: 'x' }])(
    'G6 lists no schema where %o would mean something else',
    (part) => {
      expect(orTaskHandle({ type: 'object', properties: { n: part } } as never)).toBeUndefined()
    },
  )
})
