/** Places one order in turns: every POST goes wherever the balancer sends it. */

import { connectTurns, type Got, type Message } from '../support/turns-client.ts'

export interface TurnsOrder {
  readonly text: string
  readonly turns: number
}

const ANSWERS: Readonly<Record<string, Message>> = {
  Where: { action: 'accept', content: { value: 'Ulm' } },
  Charge: { action: 'accept', content: { confirm: true } },
}
const MAX_TURNS = 8

function answerTo({ method, params }: Message): Message {
  if (method === 'ping') return {}
  const [word = ''] = String((params as Message).message).split(' ')
  return ANSWERS[word] ?? {}
}

export async function placeOrderInTurns(url: string, order: number): Promise<TurnsOrder> {
  const client = await connectTurns(fetch, url, { capabilities: { elicitation: {} } })
  let got: Got = await client.request('tools/call', { name: 'order', arguments: { order } })
  for (let turns = 0; turns < MAX_TURNS; turns++) {
    if (got.kind === 'response') {
      const { result } = got.message as { result?: { content: { text: string }[] } }
      if (result === undefined) throw new Error(`order ${order}: ${got.raw}`)
      return { text: result.content[0]?.text ?? '', turns }
    }
    got = await client.answer(got, got.requests.map(answerTo))
  }
  throw new Error(`order ${order}: not done after ${MAX_TURNS} turns`)
}
