import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { type Client, connect, type InputResponses, openPending, sealPending } from 'rondo/client'

/** Stores calls while nobody is there to answer: a database, a file, a queue. */
export interface Shelf {
  put(id: string, sealed: string): Promise<void>
  get(id: string): Promise<string>
}

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
  const pending = openPending(await shelf.get(id), key)
  const step = await client.resume(pending, answers)
  if (step.status === 'complete') return step
  await shelf.put(id, sealPending(step.pending, key))
  return { status: 'asked', id, questions: step.pending.questions } as const
}

// Begin: npx tsx client-suspend.ts (the environment variable SERVER has the URL)
// Answer: npx tsx client-suspend.ts ID '{ "resolution": { "resolution": "Fixed" } }'
if (process.argv[1] === import.meta.filename) {
  const folder = '.pending'
  await mkdir(folder, { recursive: true })
  await writeFile(`${folder}/key`, randomBytes(32), { flag: 'wx', mode: 0o600 }).catch(() => {})
  const key = await readFile(`${folder}/key`)
  const shelf: Shelf = {
    put: (id, sealed) => writeFile(`${folder}/${id}`, sealed),
    get: (id) => readFile(`${folder}/${id}`, 'utf8'),
  }
  const client = await connect(process.env.SERVER ?? 'http://127.0.0.1:3000/mcp')
  const [id, contents = '{}'] = process.argv.slice(2)
  const answers = Object.entries(JSON.parse(contents)).map(([name, content]) => [
    name,
    { action: 'accept', content },
  ])
  const step = id
    ? await proceed(client, shelf, key, id, Object.fromEntries(answers))
    : await begin(client, shelf, key)
  console.log(JSON.stringify(step, undefined, 2))
  await client.close()
}
