import { type Client, type InputResponses, openPending, sealPending } from 'rondo/client'

/** Where calls are stored while nobody is there to answer: a database, a file, a queue. */
export interface Shelf {
  put(id: string, sealed: string): Promise<void>
  take(id: string): Promise<string>
}

// #region suspend
/** Makes the call; returns its id and its questions if somebody has to be asked first. */
export async function begin(client: Client, shelf: Shelf, key: Uint8Array) {
  const fields = { 'System.State': 'Resolved' }
  const step = await client.start({
    method: 'tools/call',
    name: 'update_work_item',
    arguments: { workItemId: 4522, fields },
  })
  if (step.status === 'complete') return step
  await shelf.put(step.pending.id, sealPending(step.pending, key))
  return { status: 'asked', id: step.pending.id, questions: step.pending.questions } as const
}

/** Days later, in another process: continues with the answers. */
export async function proceed(
  client: Client,
  shelf: Shelf,
  key: Uint8Array,
  id: string,
  answers: InputResponses,
) {
  const pending = openPending(await shelf.take(id), key)
  const step = await client.resume(pending, answers)
  if (step.status === 'complete') return step
  await shelf.put(id, sealPending(step.pending, key))
  return { status: 'asked', id, questions: step.pending.questions } as const
}
// #endregion
