/** Shared setup of tests of the built command: hooks that create a home directory for each test, terminals, and servers to call. */

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { generateKey } from 'rondo'
import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from 'vitest'
import { EXITS } from '../../packages/cli/src/command-line.ts'
import { createDeskServer } from './desk-server.ts'
import { type CliHome, createCliHome, type Printed } from './run-cli.ts'
import { serveTasks, type TaskDesk } from './task-desk.ts'
import { openTerminal, type TerminalSession } from './terminal-session.ts'

export interface UsedHome extends Omit<CliHome, 'remove'> {
  /** The files of the calls that are kept there. */
  files(): string[]
}

/** The home directory of the running test; deleted after it. */
export function useCliHome(): UsedHome {
  // The tests start many processes, on a machine that may be busy.
  vi.setConfig({ testTimeout: 300_000 })
  let home: CliHome
  beforeEach(() => {
    home = createCliHome()
  })
  afterEach(() => home.remove())
  return {
    get path() {
      return home.path
    },
    get env() {
      return home.env
    },
    run: (args, options) => home.run(args, options),
    json: (args, options) => home.json(args, options),
    files: () => readdirSync(join(home.path, 'pending')),
  }
}

/** Opens the command at a terminal, which is closed after the test. */
export function useTerminal(home: Pick<CliHome, 'env'>): (...words: string[]) => TerminalSession {
  const sessions: TerminalSession[] = []
  afterEach(() => {
    for (const session of sessions.splice(0)) session.close()
  })
  return (...words) => {
    const session = openTerminal(words, { ...home.env, TERM: 'xterm-256color' })
    sessions.push(session)
    return session
  }
}

/** The desk server, shared by all tests of a file. */
export function useDesk(keys: string = generateKey()): { readonly url: string } {
  const server = createDeskServer(keys)
  let url = ''
  beforeAll(async () => {
    url = (await server.listen({ port: 0, signals: false })).url
  })
  afterAll(() => server.close())
  return {
    get url() {
      return url
    },
  }
}

interface UsedTasks extends Pick<TaskDesk, 'url' | 'open'> {
  /** Begins a task and leaves it to the server. */
  detach(tool: string, ...words: string[]): Promise<{ readonly id: string; readonly taskId: string }>
  /** Polls until the task exists. */
  see(status: string, ...words: string[]): Promise<Printed & { task: Printed }>
}

/** A server whose tools run as tasks, shared by all tests of a file. */
export function useTaskDesk(home: UsedHome): UsedTasks {
  let desk: TaskDesk
  beforeAll(async () => {
    desk = await serveTasks()
  })
  afterAll(() => desk.close())
  return {
    get url() {
      return desk.url
    },
    open: () => desk.open(),
    async detach(tool, ...words) {
      const { value, code } = await home.json(['call', desk.url, tool, '--detach', ...words])
      expect([code, value.status]).toEqual([EXITS.pending.code, 'task'])
      return { id: String(value.id), taskId: (value.task as { taskId: string }).taskId }
    },
    async see(status, ...words) {
      let last: Printed | undefined
      const look = async (): Promise<string | undefined> => {
        last = (await home.json(['task', 'get', ...words])).value
        return (last.task as Printed).status
      }
      await expect.poll(look, { timeout: 120_000, interval: 50 }).toBe(status)
      return last as Printed & { task: Printed }
    },
  }
}
