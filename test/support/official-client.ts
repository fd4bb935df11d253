/**
 * The official client with a user who answers from a script. It passes questions to its handlers without their keys, so
 * forms are answered in the order of the script; the last answer is used for all further questions.
 */

import { Client, type ClientOptions, type Transport } from '@modelcontextprotocol/client'
import { cancel, decline, type Script } from 'rondo/testing'
import type { Scenario } from '../scenarios/scenario.ts'

type Call = Pick<Scenario, 'method' | 'target' | 'args'>

export interface Ended {
  readonly text: string
  readonly isError: boolean
}

export interface OfficialClient {
  readonly client: Client
  /** The messages of the questions that were asked, in order. */
  readonly asked: string[]
  /** Replaces the script that the user answers from. */
  answer(script: Script): void
  run(call: Call, script?: Script): Promise<Ended>
  close(): Promise<void>
}

const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }

export const MODERN: ClientOptions = { versionNegotiation: { mode: { pin: '2026-07-28' } } }
/** The default of the official client: it connects as clients did before there were rounds. */
export const OLDER: ClientOptions = {}

type Answer = Readonly<Record<string, unknown>>

export async function connectOfficial(
  transport: Transport,
  options: ClientOptions = MODERN,
): Promise<OfficialClient> {
  const client = new Client(
    { name: 'official', version: '2.4.0' },
    { capabilities: CAPABILITIES, ...options },
  )
  const asked: string[] = []
  let script: Script = {}
  let forms: Answer[] = []
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    asked.push(params.message)
    const answer = forms.length > 1 ? forms.shift() : forms[0]
    if (answer === undefined) throw new Error(`The script has no answer to "${params.message}"`)
    if (answer === decline || answer === cancel) return { action: answer.action as 'decline' | 'cancel' }
    return { action: 'accept', content: answer as never }
  })
  client.setRequestHandler('sampling/createMessage', async () => script.capital as never)
  client.setRequestHandler('roots/list', async () => script.roots as never)
  await client.connect(transport)
  const answer = (answers: Script): void => {
    script = answers
    forms = (Object.values(answers) as Answer[]).filter(isForm)
  }
  return {
    client,
    asked,
    answer,
    run(call, answers = {}) {
      answer(answers)
      return run(client, call)
    },
    close: () => client.close(),
  }
}

function isForm(answer: Answer): boolean {
  return !('roots' in answer) && !('model' in answer)
}

interface Texts {
  readonly content?: readonly { readonly text?: string }[]
  readonly messages?: readonly { readonly content: { readonly text?: string } }[]
  readonly contents?: readonly { readonly text?: string }[]
  readonly isError?: boolean
}

async function run(client: Client, { method, target, args = {} }: Call): Promise<Ended> {
  const result = (await request(client, method, target, args)) as Texts
  const blocks = result.content ?? result.messages?.map(({ content }) => content) ?? result.contents ?? []
  return { text: blocks.map(({ text = '' }) => text).join('\n'), isError: result.isError ?? false }
}

function request(
  client: Client,
  method: Scenario['method'],
  target: string,
  args: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  if (method === 'tools/call') return client.callTool({ name: target, arguments: args })
  if (method === 'prompts/get')
    return client.getPrompt({ name: target, arguments: { ...args } as Record<string, string> })
  return client.readResource({ uri: target })
}
