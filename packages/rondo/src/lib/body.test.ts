import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Body, type BodyBounds, readNodeBody, readWebBody } from './body.ts'

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text)

function overNode(chunks: readonly string[], bounds: BodyBounds): Promise<Body> {
  const source = new PassThrough()
  for (const chunk of chunks) source.write(chunk)
  source.end()
  return readNodeBody(source, bounds)
}

function overWeb(chunks: readonly string[], bounds: BodyBounds): Promise<Body> {
  const left = [...chunks]
  const source = new ReadableStream<Uint8Array>({
    pull(controller) {
      const next = left.shift()
      if (next === undefined) controller.close()
      else controller.enqueue(bytesOf(next))
    },
  })
  return readWebBody(source, bounds)
}

describe.each([
  ['Node', overNode],
  ['the web', overWeb],
])('a body from a stream of %s', (_, read) => {
  it('is read whole if it fits, however it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.string({ minLength: 1 }), { maxLength: 20 }),
        fc.nat(200),
        async (chunks, limit) => {
          const whole = Buffer.from(chunks.join(''))
          const body = await read(chunks, { limit })
          if (whole.byteLength > limit) expect(body).toEqual({ kind: 'too-large' })
          else if (body.kind === 'whole') expect(Buffer.from(body.bytes).equals(whole)).toBe(true)
          else expect.fail(body.kind)
        },
      ),
      { numRuns: 100 },
    )
  })

  it('is not read if its declared length is too large', async () => {
    const discarded: Uint8Array[] = []
    const bounds = { limit: 3, declared: '4', onDiscarded: (bytes: Uint8Array) => discarded.push(bytes) }
    expect(await read(['abcd'], bounds)).toEqual({ kind: 'too-large' })
    expect(discarded).toEqual([])
  })

  it('is discarded up to a bound, and whoever asks receives its bytes', async () => {
    let text = ''
    const onDiscarded = (bytes: Uint8Array): void => {
      text += Buffer.from(bytes).toString()
    }
    expect(await read(['ab', 'cd', 'ef', 'gh', 'ij'], { limit: 3, patience: 6, onDiscarded })).toEqual({
      kind: 'too-large',
    })
    expect(text).toBe('abcdefgh')
  })

  it('is refused if there is no room for it, unless all of its declared bytes have arrived', async () => {
    const hasRoom = (size: number): boolean => size <= 2
    expect(await read(['ab', 'cd'], { limit: 9, hasRoom })).toEqual({ kind: 'no-room' })
    expect(await read(['ab', 'cd'], { limit: 9, hasRoom, declared: '4' })).toMatchObject({ kind: 'whole' })
  })
})

it('the reader reports a stream of Node that closes before its end', async () => {
  const source = new PassThrough()
  const reading = readNodeBody(source, { limit: 9 })
  source.write('ab')
  source.destroy(new Error('gone'))
  expect(await reading).toMatchObject({ kind: 'broken', error: { message: 'gone' } })
})

it('the reader reports a stream of the web that fails, and reads no body as an empty one', async () => {
  const failing = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.error(new Error('gone')),
  })
  expect(await readWebBody(failing, { limit: 9 })).toMatchObject({
    kind: 'broken',
    error: { message: 'gone' },
  })
  expect(await readWebBody(null, { limit: 9 })).toEqual({ kind: 'whole', bytes: new Uint8Array(0) })
})

describe('a stream of Node that has ended', () => {
  it('is broken at once if its sender has gone or somebody has read it', async () => {
    const gone = new PassThrough()
    gone.destroy()
    const consumed = new PassThrough()
    consumed.end('abc')
    for await (const _ of consumed);
    expect(await readNodeBody(gone, { limit: 10 })).toEqual({ kind: 'broken' })
    expect(await readNodeBody(consumed, { limit: 10 })).toEqual({ kind: 'broken' })
  })
})
