/**
 * What our client remembers of a server's tools: which arguments are mirrored into headers, and which run only as tasks
 * that have to be asked for. A tool whose annotations are bad is left out of the list and reported; one bad tool does not
 * hide the others.
 */

import { isRecord } from '../lib/is-record.ts'
import { type ParamHeader, scanParamHeaders } from '../protocol/param-header.ts'
import type { Tool } from '../protocol/result.ts'

export interface ToolBook {
  /** Takes the tools of a fresh list; gives those that can be used, all of them where nothing is mirrored. */
  learn(tools: readonly Tool[], mirrors?: boolean): Tool[]
  /** There was a list. */
  readonly learned: boolean
  /** Undefined for a tool that was never listed. */
  mirrored(name: string): readonly ParamHeader[] | undefined
  /** What the tool says of running as a task that is asked for; undefined for a tool that was never listed. */
  taskSupport(name: string): TaskSupport | undefined
}

export type TaskSupport = 'required' | 'optional' | 'forbidden'

function supportOf({ execution }: Tool): TaskSupport {
  const said = isRecord(execution) ? execution.taskSupport : undefined
  return said === 'required' || said === 'optional' ? said : 'forbidden'
}

export function createToolBook(onWarning: (text: string) => void): ToolBook {
  let known = new Map<string, readonly ParamHeader[]>()
  let support: ReadonlyMap<string, TaskSupport> | undefined
  return {
    get learned() {
      return support !== undefined
    },
    learn(tools, mirrors = true) {
      const found = new Map<string, readonly ParamHeader[]>()
      const usable = tools.filter((tool) => {
        if (!mirrors) return true
        const scan = scanParamHeaders(tool.inputSchema)
        if (scan.kind === 'good') found.set(tool.name, scan.headers)
        else onWarning(`The tool "${tool.name}" is left out: ${scan.problem}`)
        return scan.kind === 'good'
      })
      known = found
      support = new Map(usable.map((tool) => [tool.name, supportOf(tool)]))
      return usable
    },
    mirrored: (name) => known.get(name),
    taskSupport: (name) => support?.get(name),
  }
}
