/**
 * The suite for our client with a server of an older era, or with one that is held to it: the same handlers as for rounds
 * answer what the server pushes. Questions have no names there, so the script goes by their words.
 */

import { describe, expect, it } from 'vitest'
import {
  answer,
  type Client,
  type ConnectOptions,
  type ConnectTarget,
  connect,
  openQuestions,
  type PolicyRound,
} from '../../packages/rondo/src/client.ts'

export interface OlderWay {
  readonly target: () => ConnectTarget
  readonly options?: ConnectOptions
  readonly version: string
  /** Calls can be kept: the draft has rounds. */
  readonly rounds?: true
  /** Leave out what does not depend on how messages travel: every client of such a test starts a process. */
  readonly brief?: true
}

const textOf = (result: { content: readonly unknown[] }) => (result.content[0] as { text: string }).text

const SCRIPT: Readonly<Record<string, string>> = {
  'Who are you?': 'Ada',
  'The first?': 'a',
  'The second?': 'b',
  'The third?': 'c',
  'Left?': 'L',
  'Right?': 'R',
  'Which tone?': 'dry',
  'Which period?': 'May',
}

export const scripted = (asked: string[] = []): ConnectOptions => ({
  answers: {
    elicitation: {
      form: ({ message, requestedSchema }, { round }) => {
        asked.push(`${round}: ${message}`)
        const field = Object.keys(requestedSchema.properties as object)[0] ?? ''
        return { action: 'accept', content: { [field]: SCRIPT[message] ?? '' } }
      },
    },
  },
})

export function describeOlder(server: { name: string; version: string }, ways: [string, OlderWay][]): void {
  describe.each(ways)(`our client and ${server.name} over %s`, (_name, way) => {
    const open = (options: ConnectOptions = {}): Promise<Client> =>
      connect(way.target(), { ...way.options, ...options })

    it('C5 finds out what the server speaks, and answers a plain call', async () => {
      await using client = await open()
      expect(client.server).toMatchObject(server)
      expect(client.protocolVersion).toBe(way.version)
      expect(textOf(await client.callTool('add', { a: 2, b: 3 }))).toBe('5')
      expect((await client.listTools()).map((tool) => tool.name)).toContain('three_rounds')
      expect((await client.discover()).supportedVersions).toContain(way.version)
    })

    it('C5 counts every question as a round', async () => {
      const asked: string[] = []
      await using client = await open(scripted(asked))
      expect(textOf(await client.callTool('three_rounds', { id: 7 }))).toBe('7: a b c')
      expect(asked).toEqual(['1: The first?', '2: The second?', '3: The third?'])
    })

    it('C5 answers several questions at once', async () => {
      await using client = await open(scripted())
      expect(textOf(await client.callTool('parallel'))).toBe('L and R')
    })

    it('C5 has sampling and roots answered by their handlers', async () => {
      await using client = await open({
        answers: {
          sampling: () => ({ role: 'assistant', content: { type: 'text', text: 'yes' }, model: 'm' }),
          roots: () => ({ roots: [{ uri: 'file:///srv' }] }),
        },
      })
      expect(JSON.parse(textOf(await client.callTool('ask_model')))).toMatchObject({
        idea: { model: 'm' },
        where: { roots: [{ uri: 'file:///srv' }] },
      })
    })

    it('C5 C13 shows each question to the policies, which may refuse it', async () => {
      const rounds: PolicyRound[] = []
      const onRound = (round: PolicyRound) => {
        rounds.push(round)
        return round.round < 2 ? undefined : ({ kind: 'refuse', reason: 'enough' } as const)
      }
      await using client = await open({ ...scripted(), onRound })
      const request = { method: 'tools/call', name: 'three_rounds', arguments: { id: 1 } } as const
      await expect(client.callTool('three_rounds', { id: 1 })).rejects.toMatchObject({
        code: 'INPUT_REFUSED',
      })
      expect(rounds).toMatchObject([
        { round: 1, request, server },
        { round: 2, request, server },
      ])
      expect(textOf(await client.callTool('greet'))).toBe('Hello, Ada!')
    })

    it('C12 can be cancelled while the server works, and reports progress', async () => {
      await using client = await open()
      const controller = new AbortController()
      const call = client.callTool('hang', {}, { signal: controller.signal })
      controller.abort(new Error('enough'))
      await expect(call).rejects.toThrow('enough')
      const seen: number[] = []
      await client.callTool('progress', {}, { onProgress: ({ progress }) => seen.push(progress) })
      expect(seen).toEqual([1, 2, 3])
    })

    if (way.rounds) {
      it('C10 C11 hands a call to another client as JSON', async () => {
        await using first = await open()
        const request = { method: 'tools/call', name: 'three_rounds', arguments: { id: 9 } } as const
        let step = await first.start(request)
        for (const value of ['x', 'y', 'z']) {
          if (step.status !== 'input_required') throw new Error('The server should ask')
          const [key] = openQuestions(step.pending)[0] ?? ['']
          const written = JSON.stringify(answer(step.pending, key, { action: 'accept', content: { value } }))
          await using other = await open()
          step = await other.resume(JSON.parse(written) as typeof step.pending)
        }
        expect(step).toMatchObject({ status: 'complete', result: { content: [{ text: '9: x y z' }] } })
      })
    }

    if (way.brief) return

    it('C5 C6 has one question answered by the handler for forms', async () => {
      const asked: string[] = []
      await using client = await open(scripted(asked))
      expect(textOf(await client.callTool('greet'))).toBe('Hello, Ada!')
      expect(asked).toEqual(['1: Who are you?'])
    })

    it.each(['decline', 'cancel'] as const)('C5 says %s as such', async (action) => {
      await using client = await open({ answers: { elicitation: () => ({ action }) } })
      expect(textOf(await client.callTool('greet'))).toBe(`nobody (${action})`)
    })

    it('C5 C14 asks for consent to a URL', async () => {
      const urls: string[] = []
      const url = (params: { url: string }) => {
        urls.push(params.url)
        return { action: 'accept' as const }
      }
      await using client = await open({ answers: { elicitation: { url } } })
      expect(textOf(await client.callTool('connect_account'))).toBe('visit: accept')
      expect(urls).toEqual(['https://example.com/connect?x=1'])
    })

    it('C5 C6 gets a prompt and reads a resource that ask', async () => {
      await using client = await open(scripted())
      const { messages } = await client.getPrompt('brief', { topic: 'tea' })
      expect(messages[0]?.content).toMatchObject({ text: 'tea, dry' })
      const { contents } = await client.readResource('test://report')
      expect(contents[0]).toMatchObject({ text: 'report for May' })
    })

    it('C5 C8 stops a server that asks too often', async () => {
      await using client = await open({ ...scripted(), maxRounds: 2 })
      const call = client.callTool('three_rounds', { id: 1 })
      await expect(call).rejects.toMatchObject({ code: 'LIMIT_CLIENT_ROUNDS' })
    })

    it('C4 keeps parallel calls apart', async () => {
      await using client = await open(scripted())
      const calls = [1, 2, 3].map((id) => client.callTool('three_rounds', { id }))
      expect((await Promise.all(calls)).map(textOf)).toEqual(['1: a b c', '2: a b c', '3: a b c'])
    })
  })
}
