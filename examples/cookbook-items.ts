import { createServer, type ServerOptions } from 'rondo'
import { z } from 'zod'

const labels = z.object({ label: z.enum(['bug', 'feature', 'question']) })

export interface Issues {
  unlabelled(): Promise<readonly { id: number; title: string }[]>
  label(id: number, label: string, options: { idempotencyKey: string }): Promise<void>
}

/** Asks one question for each item, all of them in one round, and saves each answer under a key of its own. */
export function triage(issues: Issues, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'triage', version: '1.0.0', ...options })
  server.tool('label_issues', {}, async (_args, ctx) => {
    const found = await ctx.step('find', async () => (await issues.unlabelled()).slice(0, 5))
    const answers = await Promise.all(
      found.map(({ id, title }) =>
        ctx.elicit(`label-${id}`, { message: `Label for #${id}, "${title}"?`, schema: labels }),
      ),
    )
    let saved = 0
    for (const [i, answer] of answers.entries()) {
      const issue = found[i]
      if (issue === undefined || answer.action !== 'accept') continue
      const { label } = answer.content
      await ctx.effect(`save-${issue.id}`, ({ key }) =>
        issues.label(issue.id, label, { idempotencyKey: key }),
      )
      saved += 1
    }
    return `Labelled ${saved} of ${found.length} issues.`
  })
  return server
}
