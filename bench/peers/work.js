/** The tool of every server in this folder; `../public/README.md` describes it. */

import { z } from 'zod'

export const NAME = 'resolve_bug'
export const DESCRIPTION = 'Resolve a bug'

const Resolution = z.enum(['Fixed', 'Duplicate', 'By Design'])

export const Input = z.object({ id: z.int(), resolution: Resolution.optional() })
export const Answer = z.object({ resolution: Resolution })

export const questionFor = (id) => `How was bug #${id} resolved?`
export const resultFor = (id, resolution) => `Bug #${id} resolved as ${resolution}.`
