/** A command of an earlier revision cannot say to which call its question belongs, so it serves one asking call at a time. */

import { connect } from 'rondo/client'
import { expect, it, onTestFinished } from 'vitest'
import { SERVERS, serveGateway } from './peers.ts'

const GREET = { method: 'tools/call', name: 'greet' } as const

async function setup(queueMs: number) {
  const upstream = await SERVERS['official 1.32, stdio']?.()
  const { url } = await serveGateway({ up: upstream ?? {} }, { hold: { queueMs } })
  const client = await connect(url)
  onTestFinished(() => client.close())
  const ask = (state?: { readonly key: string; readonly requestState?: string }) =>
    client.round(GREET, {
      accepts: ['form'],
      ...(state && {
        requestState: state.requestState,
        inputResponses: { [state.key]: { action: 'accept', content: { name: 'Ada' } } },
      }),
    })
  const asked = (round: Awaited<ReturnType<typeof ask>>) => {
    if (round.resultType !== 'input_required') throw new Error('The call did not ask')
    return { key: Object.keys(round.inputRequests)[0] ?? '', requestState: round.requestState }
  }
  return { client, ask, asked }
}

it('a second call that may ask is not sent while the first waits for an answer, and reads why', async () => {
  const { client, ask, asked } = await setup(100)
  const first = asked(await ask())
  expect(await ask()).toMatchObject({
    resultType: 'complete',
    result: {
      isError: true,
      content: [{ text: expect.stringMatching(/serves one at a time.*Nothing was sent/) }],
    },
  })
  // A call that may not ask has a process of its own, and waits for nobody.
  const sum = { method: 'tools/call', name: 'add', arguments: { a: 1, b: 2 } } as const
  expect(await client.round(sum, { accepts: [] })).toMatchObject({ result: { content: [{ text: '3' }] } })
  expect(await ask(first)).toMatchObject({ result: { content: [{ text: 'Hello, Ada!' }] } })
})

it('a second call is sent when the first has ended, and gets its own question', async () => {
  const { ask, asked } = await setup(60_000)
  const first = asked(await ask())
  const second = ask()
  expect(await ask(first)).toMatchObject({ result: { content: [{ text: 'Hello, Ada!' }] } })
  expect(await ask(asked(await second))).toMatchObject({ result: { content: [{ text: 'Hello, Ada!' }] } })
})
