import fc from 'fast-check'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { canonicalJson } from '../lib/json.ts'
import {
  confirmQuestion,
  formQuestion,
  questionText,
  rootsQuestion,
  samplingQuestion,
  urlQuestion,
} from './question.ts'

const schema = z.object({ b: z.string().min(2), a: z.enum(['x', 'y']).optional() })

it('P5 the text of a question is the canonical JSON of kind and request, for any message and however often it is asked', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (message) => {
      const questions = [
        formQuestion({ message, schema }),
        confirmQuestion(message),
        confirmQuestion(message, { label: 'Do it' }),
        urlQuestion({ message, url: 'https://example.com/' }),
        samplingQuestion({
          messages: [{ role: 'user', content: { type: 'text', text: message } }],
          maxTokens: 1,
        }),
        rootsQuestion(),
      ]
      for (const question of questions) {
        expect(questionText(question)).toBe(canonicalJson([question.kind, question.request]))
      }
    }),
  )
})
