import { addAbortListener, once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { replayFlow, returned } from '../../../../test/support/replay-flow.ts'
import { createRunSignal } from './signal.ts'

function createSignal({ closed = false } = {}) {
  const errors: unknown[] = []
  const closing = new Set<() => void>()
  const line = {
    notify: () => {},
    closed,
    onClose(fn: () => void) {
      closing.add(fn)
      return () => void closing.delete(fn)
    },
  }
  const run = createRunSignal(line, (error) => void errors.push(error))
  return { run, errors, closing }
}

describe('the signal of a run', () => {
  it('fires when the client is gone, and when the run is over', () => {
    const { run, closing } = createSignal()
    const { signal } = { signal: run.get() }
    expect(signal).toBeInstanceOf(AbortSignal)
    expect(run.get()).toBe(signal)
    expect(signal.aborted).toBe(false)
    for (const close of closing) close()
    expect(signal.aborted).toBe(true)
    const other = createSignal()
    other.run.get()
    other.run.abort()
    expect(other.run.get().aborted).toBe(true)
    expect(other.closing.size).toBe(0)
  })

  it('has fired already if it is first read afterwards', () => {
    const { run } = createSignal()
    run.abort()
    expect(run.get().aborted).toBe(true)
    expect(createSignal({ closed: true }).run.get().aborted).toBe(true)
  })

  it('R11 reports what its listeners throw, and calls the others', async () => {
    const { run, errors } = createSignal()
    const signal = run.get()
    const seen: string[] = []
    const fails = (name: string) => {
      throw new Error(name)
    }
    signal.addEventListener('abort', () => fails('function'))
    signal.addEventListener('abort', { handleEvent: () => fails('object') })
    signal.addEventListener('abort', async () => fails('async'))
    signal.onabort = () => fails('onabort')
    signal.addEventListener('abort', ({ type }) => void seen.push(type), { once: true })
    run.abort()
    await sleep(0)
    expect(errors.map((error) => (error as Error).message).sort()).toEqual([
      'async',
      'function',
      'object',
      'onabort',
    ])
    expect(seen).toEqual(['abort'])
  })

  it('forgets a listener that is removed', () => {
    const { run } = createSignal()
    const signal = run.get()
    const seen: string[] = []
    const listener = () => void seen.push('listener')
    signal.addEventListener('abort', listener)
    signal.addEventListener('abort', listener)
    signal.removeEventListener('abort', listener)
    signal.onabort = () => void seen.push('first')
    signal.onabort = null
    expect(signal.onabort).toBeNull()
    signal.onabort = 'no function' as never
    expect(signal.onabort).toBeNull()
    signal.onabort = () => void seen.push('second')
    run.abort()
    expect(seen).toEqual(['second'])
  })

  it('ignores null in place of a listener, as every signal does', () => {
    const { run, errors } = createSignal()
    const signal = run.get()
    signal.addEventListener('abort', null as never)
    signal.removeEventListener('abort', null as never)
    run.abort()
    expect(errors).toEqual([])
  })

  it('works with what takes a signal: fetch, timers, events and derived signals', async () => {
    const { run, errors } = createSignal()
    const signal = run.get()
    const derived = AbortSignal.any([signal])
    let heard = 0
    addAbortListener(signal, () => void heard++)
    const waiting = [
      sleep(60_000, undefined, { signal }),
      once(new EventTarget(), 'never', { signal }),
      fetch('http://127.0.0.1:9/', { signal }),
    ]
    run.abort()
    for (const one of waiting) await expect(one).rejects.toThrow()
    expect(derived.aborted).toBe(true)
    expect(heard).toBe(1)
    expect(errors).toEqual([])
  })
})

describe('the signal of an attempt', () => {
  it('R11 reports what its listeners throw, and ends nothing where nobody reads reports', async () => {
    const error = new Error('a bug of the author')
    const flow = replayFlow((ctx) =>
      ctx
        .step(
          'slow',
          ({ signal }) => {
            signal.onabort = () => {
              throw error
            }
            return new Promise<string>(() => {})
          },
          { timeout: 5 },
        )
        .catch(({ name }: Error) => name),
    )
    expect(returned(await flow.round())).toBe('TimeoutError')
    expect(flow.faults).toEqual([error])
    expect(returned(await flow.round(undefined, { input: { onAsideError: undefined } }))).toBe('TimeoutError')
  })
})
