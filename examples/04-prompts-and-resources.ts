import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

const tones = z.object({ tone: z.enum(['friendly', 'terse']) })
const notes: Record<string, string> = { monday: 'Buy milk', tuesday: 'Call Ada' }

/** Prompts and resources have the same `ctx` as tools: they may ask too. */
export function notebook(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'notebook', version: '1.0.0', ...options })

  server.prompt(
    'summarise',
    {
      description: 'Summarise the notes of a day',
      input: z.object({ day: z.string() }),
      complete: { day: (value) => Object.keys(notes).filter((day) => day.startsWith(value)) },
    },
    async ({ day }, ctx) => {
      const { tone } = await ctx.ask('tone', { message: 'In which tone?', schema: tones })
      return `Summarise in a ${tone} tone: ${notes[day] ?? 'nothing'}`
    },
  )

  server.resource('notes://all', { name: 'All notes', mimeType: 'application/json' }, () =>
    JSON.stringify(notes),
  )

  server.template(
    'notes://{day}/text',
    { name: 'Notes of a day', mimeType: 'text/plain', complete: { day: () => Object.keys(notes) } },
    async ({ day = '' }, ctx) => {
      const ok = await ctx.confirm('read', `Let the assistant read your notes of ${day}?`)
      return ok ? (notes[day] ?? '') : 'The user keeps these notes private.'
    },
  )
  return server
}

/** For `npx rondo console examples/04-prompts-and-resources.ts`. */
export default (options?: Partial<ServerOptions>) => notebook(options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await notebook().listen()
  console.log(`Serving ${url}\nCall it: npx rondo prompt ${url} summarise day=monday`)
  console.log(`      or: npx rondo read ${url} notes://monday/text`)
}
