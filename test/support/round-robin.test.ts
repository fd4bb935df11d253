import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { startRoundRobin } from './round-robin.ts'

const closers: (() => Promise<unknown> | unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function startTarget(name: string): Promise<URL> {
  const server: Server = createServer((req, res) => {
    let body = ''
    req.setEncoding('utf8').on('data', (text) => {
      body += text
    })
    req.on('end', () =>
      res.setHeader('x-host', req.headers.host ?? '').end(`${name} ${req.method} ${req.url} ${body}`),
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closers.push(() => server.close())
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
}

describe('the round robin', () => {
  it('sends each request to the next target and keeps method, path, body and host', async () => {
    const proxy = await startRoundRobin([await startTarget('a'), await startTarget('b')])
    closers.push(proxy.close)
    const texts: string[] = []
    for (let i = 0; i < 4; i++) {
      const response = await fetch(new URL('/x?y=1', proxy.url), { method: 'POST', body: `n${i}` })
      expect(response.headers.get('x-host')).toBe(proxy.url.host)
      texts.push(await response.text())
    }
    expect(texts).toEqual(['a POST /x?y=1 n0', 'b POST /x?y=1 n1', 'a POST /x?y=1 n2', 'b POST /x?y=1 n3'])
    expect(proxy.counts).toEqual([2, 2])
  })

  it('returns 502 for a target that is gone, and keeps serving', async () => {
    const gone = new URL('http://127.0.0.1:1')
    const proxy = await startRoundRobin([gone, await startTarget('b')])
    closers.push(proxy.close)
    const statuses = []
    for (let i = 0; i < 4; i++) statuses.push((await fetch(proxy.url)).status)
    expect(statuses).toEqual([502, 200, 502, 200])
  })
})
