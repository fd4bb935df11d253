/** Asking where the host cannot: a person answers on a page of this machine, and the call completes in a host that declares nothing. */

import { StreamableHTTPClientTransport as V1Transport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { AskLocally, LocalQuestion } from '@rondo/gateway'
import type { InputResponse } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createAskPage } from '../../packages/cli/src/bridge/page.ts'
import { HAS_BROWSER, openBrowser } from '../support/browser.ts'
import { createManualClock } from '../support/manual-clock.ts'
import { connectV1 } from '../support/v1-client.ts'
import { SERVERS, serveGateway } from './peers.ts'

const tool = (target: string, args: Record<string, unknown> = {}) =>
  ({ method: 'tools/call', target, args }) as const

/** A host as five of seven are: it declares nothing, and sends no progress token. */
async function host(url: string) {
  const client = await connectV1(new V1Transport(new URL(url)) as never, {})
  onTestFinished(() => client.close())
  return client
}

/** A person who answers when the test says so. */
function person(): AskLocally & { asked: LocalQuestion[]; answer(response: InputResponse): void } {
  const asked: LocalQuestion[] = []
  const waiting: ((response: InputResponse) => void)[] = []
  return {
    kinds: ['form', 'url'],
    asked,
    answer: (response) => waiting.shift()?.(response),
    ask: (question) =>
      new Promise((resolve) => {
        asked.push(question)
        waiting.push(resolve)
        question.signal.addEventListener('abort', () => resolve({ action: 'cancel' }))
      }),
  }
}

const ADA = { action: 'accept', content: { name: 'Ada' } } as const
const KINDS = ['official 2.4, HTTP', 'official 1.32, HTTP'] as const

describe.each(KINDS)('a host that cannot be asked, before %s', (server) => {
  const upstream = async () => (await SERVERS[server]?.()) ?? {}

  it('gets the result after a person has answered on this machine', async () => {
    const ask = person()
    const { url } = await serveGateway({ peer: await upstream() }, { ask })
    const client = await host(url)
    const greeting = client.run(tool('greet'))
    await expect.poll(() => ask.asked.length).toBe(1)
    expect(ask.asked[0]).toMatchObject({
      upstream: 'peer',
      target: 'greet',
      request: { params: { message: 'Who are you?' } },
    })
    ask.answer(ADA)
    expect(await greeting).toEqual({ text: 'Hello, Ada!', isError: false })
    expect(client.asked).toEqual([])
  })

  it('control: reads why without anybody to ask', async () => {
    const { url } = await serveGateway({ peer: await upstream() })
    const result = await (await host(url))
      .run(tool('greet'))
      .catch((error: Error) => ({ text: error.message, isError: true }))
    expect(result.isError).toBe(true)
    expect(result.text).toMatch(/elicitation|asked/i)
  })

  it('ends calls at 60 s and has a handle by then; control: a later handle would be too late', async () => {
    for (const at of [50_000, 60_000]) {
      const ask = person()
      const clock = createManualClock()
      const { url } = await serveGateway({ peer: await upstream() }, { ask, clock })
      const client = await host(url)
      const limit = new AbortController()
      clock.after(60_000, () => limit.abort(new Error('the limit of the host')))
      const calling = client.client.callTool({ name: 'greet', arguments: {} }, undefined, {
        signal: limit.signal,
      })
      calling.catch(() => {})
      if (server.includes('1.32')) await clock.elapse(10)
      await expect.poll(() => ask.asked.length).toBe(1)
      clock.advance(at)
      if (at < 60_000) expect(JSON.stringify(await calling)).toContain('task_status')
      else await expect(calling).rejects.toThrow(/limit of the host/)
    }
  })

  it('gets a handle before its limit, and the result from task_status, with other arguments each time', async () => {
    const ask = person()
    const clock = createManualClock()
    const { url, gateway } = await serveGateway({ peer: await upstream() }, { ask, clock })
    const client = await host(url)
    const calling = client.run(tool('greet'))
    if (server.includes('1.32')) await clock.elapse(10)
    await expect.poll(() => ask.asked.length).toBe(1)
    clock.advance(50_000)
    const handle = await calling
    expect(handle.text).toMatch(/question, which is open on the user's screen.*"count": 1/)
    const [, id = ''] = /"id": "([\w-]+)"/.exec(handle.text) ?? []
    const waiting = client.run(tool('task_status', { id, count: 1 }))
    await clock.elapse(50_000)
    expect((await waiting).text).toContain('"count": 2')
    ask.answer(ADA)
    expect(await client.run(tool('task_status', { id, count: 2 }))).toEqual({
      text: 'Hello, Ada!',
      isError: false,
    })
    expect((await client.run(tool('task_status', { id: 'other', count: 1 }))).isError).toBe(true)
    expect(gateway.heldCalls()).toBe(0)
  })

  it('gets progress that grows while the person is asked, if it sent a token', async () => {
    const ask = person()
    const { url } = await serveGateway({ peer: await upstream() }, { ask, heartbeatMs: 20 })
    const client = await host(url)
    const reported: number[] = []
    const onprogress = ({ progress }: { progress: number }) => void reported.push(progress)
    const options = { onprogress, resetTimeoutOnProgress: true }
    const calling = client.client.callTool({ name: 'greet', arguments: {} }, undefined, options)
    await expect.poll(() => reported.length).toBeGreaterThan(2)
    expect(ask.asked).toHaveLength(1)
    ask.answer(ADA)
    expect((await calling).content).toEqual([{ type: 'text', text: 'Hello, Ada!' }])
    expect(reported).toEqual([...new Set(reported)].toSorted((a, b) => a - b))
  })

  it('reads that nobody answered, when the time for an answer is over', async () => {
    const ask = person()
    const clock = createManualClock()
    const { url, gateway } = await serveGateway({ peer: await upstream() }, { ask, clock })
    const client = await host(url)
    const onprogress = (): void => {}
    const calling = client.client.callTool({ name: 'greet', arguments: {} }, undefined, { onprogress })
    if (server.includes('1.32')) await clock.elapse(10)
    await expect.poll(() => ask.asked.length).toBe(1)
    clock.advance(600_000)
    const { content, isError } = await calling
    expect(isError).toBe(true)
    expect(content).toMatchObject([{ text: expect.stringMatching(/did not answer within 600 s/) }])
    expect(ask.asked[0]?.signal.aborted).toBe(true)
    await expect.poll(() => gateway.heldCalls()).toBe(0)
  })

  it('ends the question when the client cancels', async () => {
    const ask = person()
    const { url, gateway } = await serveGateway({ peer: await upstream() }, { ask })
    const client = await host(url)
    const stop = new AbortController()
    const calling = client.client.callTool({ name: 'greet', arguments: {} }, undefined, {
      signal: stop.signal,
    })
    calling.catch(() => {})
    await expect.poll(() => ask.asked.length).toBe(1)
    stop.abort()
    await expect(calling).rejects.toThrow()
    await expect.poll(() => ask.asked[0]?.signal.aborted).toBe(true)
    await expect.poll(() => gateway.heldCalls()).toBe(0)
  })
})

describe.skipIf(!HAS_BROWSER)('the page in a browser', () => {
  it('takes the answer of a person, and the call completes', async () => {
    const browser = await openBrowser()
    onTestFinished(() => browser.close())
    const page = createAskPage({ open: async (url) => (await browser.page.goto(url.href)) !== null })
    onTestFinished(() => page.close())
    const { url } = await serveGateway(
      { peer: (await SERVERS['official 1.32, HTTP']?.()) ?? {} },
      { ask: page },
    )
    const calling = (await host(url)).run(tool('greet'))
    await browser.page.getByRole('heading', { name: 'A question from peer (v1)' }).waitFor()
    await browser.page.getByLabel('Name').fill('Ada')
    await browser.page.getByRole('button', { name: 'Send' }).click()
    expect(await calling).toEqual({ text: 'Hello, Ada!', isError: false })
    await browser.page.getByText('You can close this page').waitFor()
    expect(browser.problems).toEqual([])
  })
})
