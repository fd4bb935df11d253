/** Forms asked by a terminal that a test drives; the real one is tested in test/cli. */

import fc from 'fast-check'
import { readForm } from 'rondo/forms'
import { describe, expect, it } from 'vitest'
import { askForm } from './question.ts'
import { Dismissed, type Terminal } from './terminal.ts'

/** Presses nothing but Enter, and gives up after a while. */
function enterOnly(): Terminal {
  let left = 60
  const next = <T>(value: T): T => {
    left -= 1
    if (left < 0) throw new Dismissed()
    return value
  }
  return {
    keys: () => 0,
    say: () => {},
    line: async (_message, start, check) => {
      // A line that is refused stays as it is, however often Enter is pressed.
      if (check(start) !== undefined) throw new Dismissed()
      return next(start)
    },
    choose: async (_message, choices, start) =>
      next(choices.find(({ value }) => value === start) ?? choices[0])?.value as typeof start,
    pick: async (_message, _choices, start) => next([...start]),
  }
}

const field = fc.oneof(
  fc.record({ type: fc.constant('boolean'), default: fc.boolean() }, { requiredKeys: ['type'] }),
  fc.record({ type: fc.constant('string'), default: fc.string() }, { requiredKeys: ['type'] }),
  fc.record({ type: fc.constant('integer'), default: fc.integer() }, { requiredKeys: ['type'] }),
  fc.record(
    { enum: fc.constant(['Approve', 'Reject']), default: fc.constant('Approve') },
    { requiredKeys: ['enum'] },
  ),
  fc.record({
    type: fc.constant('array'),
    items: fc.constant({ enum: ['a', 'b'] }),
    default: fc.constant(['a']),
  }),
)
const schema = fc
  .dictionary(fc.constantFrom('a', 'b', 'c', 'confirm'), field, { maxKeys: 4 })
  .chain((properties) =>
    fc.subarray(Object.keys(properties)).map((required) => ({ type: 'object', properties, required })),
  )

describe('a form', () => {
  it('is never approved by Enter alone, whatever it asks and suggests, unless it consists of choices', async () => {
    await fc.assert(
      fc.asyncProperty(schema, fc.boolean(), async (requestedSchema, canKeep) => {
        const asking = askForm(enterOnly(), 'm', readForm(requestedSchema), canKeep)
        const given = await asking.catch((error: unknown) => {
          if (error instanceof Dismissed) return undefined
          throw error
        })
        if (given?.kind !== 'answer' || given.response.action !== 'accept') return
        const fields = Object.values(requestedSchema.properties)
        // A user who presses Enter at an option has chosen it, and sees it in the review.
        if (fields.length > 0 && fields.every((one) => 'enum' in one)) return
        // The one thing Enter may send otherwise is the no of a confirmation.
        expect(Object.values(given.response.content ?? {})).toEqual([false])
      }),
      { numRuns: 300 },
    )
  })

  it('negative control: is sent after one key other than Enter', async () => {
    let keys = 0
    const terminal: Terminal = { ...enterOnly(), keys: () => keys++ }
    const form = readForm({ type: 'object', properties: { a: { type: 'string', default: 'x' } } })
    expect(await askForm(terminal, 'm', form, true)).toEqual({
      kind: 'answer',
      response: { action: 'accept', content: { a: 'x' } },
    })
  })
})
