import { describe, expect, it } from 'vitest'
import { createHost } from '../../serve/host.ts'
import { createTaskId, type TaskTurn } from '../../store/task-engine.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { openPiece } from './journal.ts'
import { createStatusReporter, type KeptMessage } from './status.ts'

/** A turn whose messages are read back, and a timer that fires when the test says so. */
async function start() {
  const written: KeptMessage[] = []
  let due: (() => void) | undefined
  const created = createHost({
    audience: 'a',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
  })
  await created.keys.ready()
  const after = (_ms: number, fn: () => void) => {
    due = fn
    return () => {
      due = undefined
    }
  }
  const host: FlowHost = { ...created, platform: { ...created.platform, after } }
  const task = { id: createTaskId(), owner: { tenant: 'a', principal: 'p' } } as TaskTurn['task']
  const opening = { maxPieceBytes: 1_000_000 } as TaskHost
  const status = createStatusReporter(host, {
    task,
    status: async (sealed) => void written.push(openPiece(host, opening, task, 'message', sealed)),
  })
  const fire = () => {
    due?.()
    due = undefined
  }
  return { status, written, fire }
}

describe('the reporter of a turn', () => {
  it('G7 names what has run for a while, and nothing that was short', async () => {
    const { status, written, fire } = await start()
    status.begins?.('step', 'short')
    status.ends('short')
    fire()
    expect(written).toEqual([])
    status.begins?.('step', 'a')
    status.begins?.('effect', 'b')
    fire()
    status.ends('a')
    fire()
    status.rests()
    expect(written).toEqual([
      { auto: 'Running step and effect "a", "b"' },
      { auto: 'Running effect "b"' },
      { auto: 'Working' },
    ])
  })

  it('G7 leaves the message of the author alone, also if it was set in an earlier run', async () => {
    for (const set of ['tell', 'told'] as const) {
      const { status, written, fire } = await start()
      status[set]?.('mine')
      status.begins?.('step', 'a')
      fire()
      status.rests('Waiting for the event "e"')
      expect(written).toEqual(set === 'tell' ? ['mine'] : [])
    }
  })

  it('G7 reports nothing after its turn', async () => {
    const { status, written, fire } = await start()
    status.begins?.('step', 'a')
    status.close()
    fire()
    expect(written).toEqual([])
  })
})
