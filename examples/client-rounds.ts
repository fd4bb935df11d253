import type { CallToolResult, Client, InputRequest, InputResponse } from 'rondo/client'

/** Where your user interface goes; this one knows the answer. */
function fulfil(question: InputRequest): InputResponse {
  if (question.method !== 'elicitation/create') throw new Error(`Nobody here answers ${question.method}`)
  return { action: 'accept', content: { region: 'eu-west-1' } }
}

// #region rounds
/** Runs the rounds of a call itself: the state and the responses are in its own hands. */
export async function provision(client: Client, name: string): Promise<CallToolResult> {
  const request = { method: 'tools/call', name: 'provision', arguments: { name } } as const
  let round = await client.round(request)
  while (round.resultType === 'input_required') {
    const entries = Object.entries(round.inputRequests).map(([key, question]) => [key, fulfil(question)])
    const { requestState } = round
    // Write both down here, and any process can send the next round.
    round = await client.round(request, { inputResponses: Object.fromEntries(entries), requestState })
  }
  return round.result
}
// #endregion
