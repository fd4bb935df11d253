/** `rondo console --config`: flows through a gateway, with both sides. Needs the build. */

import { connect } from 'rondo/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ConsoleEvent } from '../../packages/cli/src/console/event.ts'
import { HAS_BROWSER, openBrowser } from '../support/browser.ts'
import { type ConsoleProcess, startConsole } from '../support/console-process.ts'
import { processFile } from '../support/process-file.ts'

// Many processes, on a machine that may be busy.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 })

let console: ConsoleProcess
beforeAll(async () => {
  const server = (file: string) => ({
    command: process.execPath,
    args: [processFile(`test/support/${file}`)],
  })
  console = await startConsole({
    mcpServers: { old: server('v1-stdio.ts'), new: server('official-stdio.ts') },
  })
})
afterAll(() => console?.stop())

async function greet(tool: string): Promise<string> {
  const form = () => ({ action: 'accept', content: { name: 'Ada' } }) as const
  const client = await connect(console.mcp, { answers: { elicitation: { form } } })
  const { content } = await client.callTool(tool)
  await client.close()
  return JSON.stringify(content)
}

type Of<K> = Extract<ConsoleEvent, { kind: K }>

describe('the console of a gateway', () => {
  it.each([
    ['old', '2025-11-25', 1],
    ['new', '2026-07-28', 2],
  ])('reports both sides of a flow at the server %s', async (name, revision, requests) => {
    expect(await greet(`${name}_greet`)).toContain('Hello, Ada!')
    const events = await console.events()
    const rounds = events.filter(
      (one): one is Of<'round'> => one.kind === 'round' && one.round.upstream === name,
    )
    expect(rounds.map(({ round }) => [round.protocolVersion, round.upstreamVersion, round.outcome])).toEqual([
      ['2026-07-28', revision, 'input_required'],
      ['2026-07-28', revision, 'complete'],
    ])
    const exchanges = rounds.map(({ exchange }) => exchange)
    const sent = events.filter(
      (one): one is Of<'upstream'> =>
        one.kind === 'upstream' && one.request.upstream === name && one.request.target === 'greet',
    )
    // A call that is held is one request over both rounds.
    expect(sent).toHaveLength(requests)
    for (const { exchange, request } of sent) {
      expect(exchanges).toContain(exchange)
      expect(request).toMatchObject({ method: 'tools/call', revision })
    }
  })

  it.skipIf(!HAS_BROWSER)('shows both sides on the page', async () => {
    await greet('new_greet')
    const browser = await openBrowser()
    try {
      await browser.page.goto(console.page)
      await browser.page.getByRole('link', { name: 'new_greet' }).first().click()
      await browser.page.getByText('2026-07-28 → new (2026-07-28)').waitFor()
      await browser.page.getByText(/^Round 1 on/).click()
      await browser.page
        .getByText(/new \(2026-07-28\): tools\/call greet input_required/)
        .first()
        .waitFor()
      expect(browser.problems).toEqual([])
    } finally {
      await browser.close()
    }
  })
})

it('a configuration with a mistake is refused with its reason', async () => {
  await expect(startConsole({ mcpServers: { a: { comand: 'x' } } })).rejects.toThrow(/Did you mean "command"/)
})
