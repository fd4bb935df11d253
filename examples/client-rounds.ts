import {
  type CallToolResult,
  type Client,
  connect,
  type InputRequest,
  type InputResponse,
} from 'rondo/client'

/** Stands for your user interface; this one knows the answer. */
function fulfil(question: InputRequest): InputResponse {
  if (question.method !== 'elicitation/create') throw new Error(`No answer to ${question.method}`)
  return { action: 'accept', content: { region: 'eu' } }
}

/** Runs the rounds of a call itself, and so controls the state and the responses. */
export async function createBucket(client: Client, name: string): Promise<CallToolResult> {
  const request = { method: 'tools/call', name: 'create_bucket', arguments: { name } } as const
  let round = await client.round(request)
  while (round.resultType === 'input_required') {
    const entries = Object.entries(round.inputRequests).map(([key, question]) => [key, fulfil(question)])
    const { requestState } = round
    // Store both here, and any process can send the next round.
    round = await client.round(request, { inputResponses: Object.fromEntries(entries), requestState })
  }
  return round.result
}

if (process.argv[1] === import.meta.filename) {
  const client = await connect(process.argv[2] ?? 'http://127.0.0.1:3000/mcp')
  console.log((await createBucket(client, 'photos')).content)
  await client.close()
}
