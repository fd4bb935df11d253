/** Tools whose authors forgot an `await`, as a process of its own. The argument `rejections` says whether it logs unhandled rejections. */

import { type Context, createServer } from '../../packages/rondo/src/index.ts'

const question = { message: 'Say', schema: { type: 'object', properties: { value: { type: 'string' } } } }
const server = createServer({
  name: 'faulty',
  version: '1',
  keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
  log(event) {
    if (event.event === 'warning') process.send?.({ warning: event.message })
    if (event.event === 'fault') process.send?.({ fault: String(event.error) })
  },
})

server.tool('ours', {}, async (_args, ctx) => {
  const a = ctx.ask('a', question)
  const b = ctx.ask('b', question)
  await a
  await b
  return 'done'
})
server.tool('theirs', {}, async (_args, ctx) => {
  const askFor = async (inner: Context, key: string) => (await inner.ask(key, question)).value
  const a = askFor(ctx, 'a')
  const b = askFor(ctx, 'b')
  return [await a, await b].join()
})
server.tool('step', {}, async (_args, ctx) => {
  void ctx.step('audit', () => Promise.reject(new Error('no disk')))
  await ctx.step('other', () => 1)
  return 'done'
})
server.tool('listener', {}, async (_args, ctx) => {
  ctx.signal.addEventListener('abort', () => {
    throw new Error('thrown by a listener')
  })
  ctx.signal.addEventListener('abort', async () => {
    throw new Error('rejected by a listener')
  })
  ctx.signal.onabort = () => {
    throw new Error('thrown by onabort')
  }
  await ctx.ask('a', question)
})
server.tool('hello', {}, () => 'hello')

const { port } = await server.listen({ port: 0, rejections: process.argv[2] !== 'unguarded' })
process.send?.({ port })
