/**
 * Names a process so that others on the same machine can tell whether it is still there: after a crash its work can go
 * on at once instead of waiting for a lease. Only where the system tells (Linux); elsewhere nobody is ever declared gone.
 */

import { readFileSync, readlinkSync } from 'node:fs'

/** This process: boot, namespace of process ids, process id, and when it began; ids are used again, beginnings are not. */
export function processTag(): string {
  own ??= `${systemTag()}:${process.pid}:${startOf(process.pid) ?? 'unknown'}`
  return own
}

let own: string | undefined

/** True only if the tag is from this system and its process has ended. */
export function isProcessGone(tag: string): boolean {
  const [, system, pid, start] = /^(.+:.+):(\d+):(\d+)$/.exec(tag) ?? []
  if (system === undefined || system !== systemTag()) return false
  return startOf(Number(pid)) !== start
}

let system: string | undefined

function systemTag(): string {
  system ??= readSystemTag()
  return system
}

function readSystemTag(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return `${boot}:${readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')}`
  } catch {
    return 'no:proc'
  }
}

/** Undefined for a process that is not there, or is dead and only waits for its parent to notice. */
function startOf(pid: number): string | undefined {
  try {
    // The name in parentheses may hold spaces: fields are counted behind it. State is the 3rd, start the 22nd.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}
