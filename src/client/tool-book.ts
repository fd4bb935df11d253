/**
 * What our client remembers of a server's tools: which arguments are mirrored into headers. A tool whose annotations are
 * bad is left out of the list and reported; one bad tool does not hide the others.
 */

import { type ParamHeader, scanParamHeaders } from '../protocol/param-header.ts'
import type { Tool } from '../protocol/result.ts'

export interface ToolBook {
  /** Takes the tools of a fresh list; gives those that can be used. */
  learn(tools: readonly Tool[]): Tool[]
  /** Undefined for a tool that was never listed. */
  mirrored(name: string): readonly ParamHeader[] | undefined
}

export function createToolBook(onWarning: (text: string) => void): ToolBook {
  let known = new Map<string, readonly ParamHeader[]>()
  return {
    learn(tools) {
      const found = new Map<string, readonly ParamHeader[]>()
      const usable = tools.filter((tool) => {
        const scan = scanParamHeaders(tool.inputSchema)
        if (scan.kind === 'good') found.set(tool.name, scan.headers)
        else onWarning(`The tool "${tool.name}" is left out: ${scan.problem}`)
        return scan.kind === 'good'
      })
      known = found
      return usable
    },
    mirrored: (name) => known.get(name),
  }
}
