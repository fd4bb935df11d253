/**
 * The suite for our client with any server, over any transport: a plain call, one question, three rounds, parallel
 * questions, a no, a URL, rounds with state alone, a prompt, a resource, a call handed over as JSON. The servers of
 * `test/support/official-server.ts` and `test/support/own-server.ts` have the tools for it.
 */

import { describe, expect, it } from 'vitest'
import {
  answer,
  type Client,
  type ConnectOptions,
  type ConnectTarget,
  connect,
  type ElicitFormParams,
  openQuestions,
} from '../../packages/rondo/src/client.ts'

interface ServerInfo {
  readonly name: string
  readonly version: string
}

export interface Way {
  readonly target: () => ConnectTarget
  readonly options?: ConnectOptions
}

const textOf = (result: { content: readonly unknown[] }) => (result.content[0] as { text: string }).text

/** Answers every field with what is written for its key. */
function scripted(script: Record<string, string>, asked: string[] = []): ConnectOptions {
  const form = (params: ElicitFormParams, { key }: { key: string }) => {
    asked.push(`${key}: ${params.message}`)
    const field = Object.keys(params.requestedSchema.properties as object)[0] ?? ''
    return { action: 'accept' as const, content: { [field]: script[key] ?? '' } }
  }
  return { answers: { elicitation: { form } } }
}

export function describeClient(server: ServerInfo, ways: readonly [string, Way][]): void {
  describe.each(ways)(`our client and ${server.name} over %s`, (_name, way) => {
    const open = (options: ConnectOptions = {}): Promise<Client> =>
      connect(way.target(), { ...way.options, ...options })

    it('C6 answers a plain call', async () => {
      await using client = await open()
      expect(client.server).toMatchObject(server)
      expect(client.protocolVersion).toBe('2026-07-28')
      expect(textOf(await client.callTool('add', { a: 2, b: 3 }))).toBe('5')
    })

    it('C1 C6 gets one question answered', async () => {
      const asked: string[] = []
      await using client = await open(scripted({ who: 'Ada' }, asked))
      expect(textOf(await client.callTool('greet'))).toBe('Hello, Ada!')
      expect(asked).toEqual(['who: Who are you?'])
    })

    it('C2 C3 runs three rounds with state', async () => {
      const asked: string[] = []
      await using client = await open(scripted({ first: 'a', second: 'b', third: 'c' }, asked))
      expect(textOf(await client.callTool('three_rounds', { id: 7 }))).toBe('7: a b c')
      expect(asked).toHaveLength(3)
    })

    it('C4 keeps parallel calls apart', async () => {
      await using client = await open(scripted({ first: 'a', second: 'b', third: 'c', who: 'Ada' }))
      const results = await Promise.all([
        client.callTool('three_rounds', { id: 1 }),
        client.callTool('greet'),
        client.callTool('three_rounds', { id: 2 }),
      ])
      expect(results.map(textOf)).toEqual(['1: a b c', 'Hello, Ada!', '2: a b c'])
    })

    it('C1 C2 answers several questions of a round and echoes a state of any characters', async () => {
      await using client = await open(scripted({ left: 'L', right: 'R' }))
      expect(textOf(await client.callTool('parallel'))).toBe('L and R')
    })

    it.each(['decline', 'cancel'] as const)('says %s as such', async (action) => {
      await using client = await open({ answers: { elicitation: () => ({ action }) } })
      expect(textOf(await client.callTool('greet'))).toBe(`nobody (${action})`)
    })

    it('C14 asks for consent to a URL', async () => {
      const urls: string[] = []
      await using client = await open({
        answers: {
          elicitation: {
            url: (params) => {
              urls.push(params.url)
              return { action: 'accept' }
            },
          },
        },
      })
      expect(textOf(await client.callTool('connect_account'))).toBe('visit: accept')
      expect(urls).toEqual(['https://example.com/connect?x=1'])
    })

    it('C5 has sampling and roots answered by their handlers', async () => {
      await using client = await open({
        answers: {
          sampling: () => ({ role: 'assistant', content: { type: 'text', text: 'yes' }, model: 'm' }),
          roots: [{ uri: 'file:///srv' }],
        },
      })
      expect(JSON.parse(textOf(await client.callTool('ask_model')))).toMatchObject({
        idea: { model: 'm' },
        where: { roots: [{ uri: 'file:///srv' }] },
      })
    })

    it('C1 C9 follows rounds with state alone', async () => {
      await using client = await open()
      expect(textOf(await client.callTool('shed', { times: 3 }))).toBe('moved 3 times')
    })

    it('C6 gets a prompt that asks', async () => {
      await using client = await open(scripted({ tone: 'dry' }))
      const { messages } = await client.getPrompt('brief', { topic: 'tea' })
      expect(messages[0]?.content).toMatchObject({ text: 'tea, dry' })
    })

    it('C6 reads a resource that asks', async () => {
      await using client = await open(scripted({ period: 'May' }))
      const { contents } = await client.readResource('test://report')
      expect(contents[0]).toMatchObject({ text: 'report for May' })
    })

    it('C10 C11 hands a call to another client as JSON', async () => {
      await using first = await open()
      let step = await first.start({ method: 'tools/call', name: 'three_rounds', arguments: { id: 9 } })
      for (const value of ['x', 'y', 'z']) {
        if (step.status !== 'input_required') throw new Error('The server should ask')
        const [key] = openQuestions(step.pending)[0] ?? ['']
        const written = JSON.stringify(answer(step.pending, key, { action: 'accept', content: { value } }))
        await using other = await open()
        step = await other.resume(JSON.parse(written) as typeof step.pending)
      }
      expect(step).toMatchObject({ status: 'complete', result: { content: [{ text: '9: x y z' }] } })
    })

    it('reports progress', async () => {
      const seen: number[] = []
      await using client = await open()
      await client.callTool('progress', {}, { onProgress: ({ progress }) => seen.push(progress) })
      expect(seen).toEqual([1, 2, 3])
    })

    it('C12 can be cancelled while the server works', async () => {
      await using client = await open()
      const controller = new AbortController()
      const call = client.callTool('hang', {}, { signal: controller.signal })
      controller.abort(new Error('enough'))
      await expect(call).rejects.toThrow('enough')
      expect(textOf(await client.callTool('add', { a: 1, b: 1 }))).toBe('2')
    })

    it('lists what there is', async () => {
      await using client = await open()
      expect((await client.listTools()).map((tool) => tool.name)).toContain('three_rounds')
      expect((await client.listPrompts()).map((prompt) => prompt.name)).toEqual(['brief'])
      expect((await client.listResources()).map((resource) => resource.uri)).toEqual(['test://report'])
      expect(await client.listResourceTemplates()).toEqual([])
    })

    it("hands the server's own errors over as such", async () => {
      await using client = await open()
      await expect(client.callTool('no_such_tool')).rejects.toMatchObject({
        code: 'PEER_ERROR',
        peer: { code: -32602 },
      })
    })
  })
}
