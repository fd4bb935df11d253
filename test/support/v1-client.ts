/** The official package of the first generation as a client whose user answers from a script. */

import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { cancel, decline, type Script } from 'rondo/testing'
import type { Scenario } from '../scenarios/scenario.ts'

type Call = Pick<Scenario, 'method' | 'target' | 'args'>
type Answer = Readonly<Record<string, unknown>>

export interface V1Client {
  readonly client: Client
  /** The questions so far: the messages of forms, the methods of the rest. */
  readonly asked: string[]
  run(call: Call, script?: Script): Promise<{ readonly text: string; readonly isError: boolean }>
  close(): Promise<void>
}

const ANYTHING = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }

export async function connectV1(transport: Transport, capabilities: object = ANYTHING): Promise<V1Client> {
  const client = new Client({ name: 'v1', version: '1.32.0' }, { capabilities })
  const asked: string[] = []
  let script: Script = {}
  let forms: Answer[] = []
  if ('elicitation' in capabilities) {
    client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
      asked.push(params.message)
      const answer = forms.shift()
      if (answer === undefined) throw new Error(`The script has no answer to "${params.message}"`)
      if (answer === decline || answer === cancel) return { action: answer.action as 'decline' }
      return params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: answer as never }
    })
    client.setRequestHandler(CreateMessageRequestSchema, async ({ method }) => {
      asked.push(method)
      return script.capital as never
    })
    client.setRequestHandler(ListRootsRequestSchema, async ({ method }) => {
      asked.push(method)
      return script.roots as never
    })
  }
  await client.connect(transport)
  return {
    client,
    asked,
    run(call, answers = {}) {
      script = answers
      forms = (Object.values(answers) as Answer[]).filter((one) => !('roots' in one) && !('model' in one))
      return run(client, call)
    },
    close: () => client.close(),
  }
}

interface Texts {
  readonly content?: readonly { readonly text?: string }[]
  readonly messages?: readonly { readonly content: { readonly text?: string } }[]
  readonly contents?: readonly { readonly text?: string }[]
  readonly isError?: boolean
}

async function run(client: Client, { method, target, args = {} }: Call) {
  const result = (await request(client, method, target, args)) as Texts
  const blocks = result.content ?? result.messages?.map(({ content }) => content) ?? result.contents ?? []
  return { text: blocks.map(({ text = '' }) => text).join('\n'), isError: result.isError ?? false }
}

function request(client: Client, method: Scenario['method'], target: string, args: Answer): Promise<unknown> {
  if (method === 'tools/call') return client.callTool({ name: target, arguments: { ...args } })
  if (method === 'prompts/get')
    return client.getPrompt({ name: target, arguments: { ...args } as Record<string, string> })
  return client.readResource({ uri: target })
}
