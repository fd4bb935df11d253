/**
 * The work all servers do: one tool that resolves a bug. Called with a resolution it returns at once; without one it
 * asks for it first. The schemas are created once, here, for all servers.
 */

import { z } from 'zod'

export const TOOL = 'resolve_bug'
export const DESCRIPTION = 'Resolve a bug'
export const QUESTION_KEY = 'resolution'

const Resolution = z.enum(['Fixed', 'Duplicate', 'By Design'])

export const Input = z.object({ id: z.int(), resolution: Resolution.optional() })
export const Answer = z.object({ resolution: Resolution })

export const questionFor = (id: number): string => `How was bug #${id} resolved?`
export const resultFor = (id: number, resolution: string): string => `Bug #${id} resolved as ${resolution}.`

/** The names of all registered tools; the one that is called is in the middle. */
export function toolNames(count: number): readonly string[] {
  return Array.from({ length: count }, (_, i) => (i === count >> 1 ? TOOL : `other_tool_${i + 1}`))
}

/** The key for states, the same for every server that seals or signs. */
export const SECRET = 'S0mCq3yZ1xgQ0f5l7Rk2vWn8bT4uJ6hEaP9dKcMiXoU='
