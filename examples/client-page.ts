import { connect } from 'rondo/client'
import { askInPage } from 'rondo/form-element'

/** Resolves a bug from a web page. Questions appear inside `place`. */
export async function resolveInPage(url: string, place: Element): Promise<unknown> {
  const client = await connect(url, { answers: { elicitation: { form: askInPage(place) } } })
  const args = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }
  const { content } = await client.callTool('update_work_item', args)
  await client.close()
  return content
}
