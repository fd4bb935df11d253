import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer as createHttpServer, type RequestListener } from 'node:http'
import { text } from 'node:stream/consumers'
import { createServer, type Server, type ServerOptions } from 'rondo'
import { z } from 'zod'

/** The order for the payment service: the amount to charge, and the address to which it reports the payment. */
export type Charge = (order: { item: string; reference: string; idempotencyKey: string }) => Promise<void>

/** Orders that continue when the payment service has reported the payment, minutes or days later. */
export function shop(charge: Charge, options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'shop', version: '1.0.0', ...options })
  server.tool('order', { input: z.object({ item: z.string() }), task: 'always' }, async ({ item }, ctx) => {
    const payment = await ctx.hook('payment', { schema: z.object({ cents: z.int().min(1) }) })
    await ctx.effect('charge', ({ key }) => charge({ item, reference: payment.id, idempotencyKey: key }))
    const { cents } = await payment.received()
    return `${item} is paid: ${cents / 100} EUR.`
  })
  return server
}

/** The endpoint for the payment service, which signs what it sends. */
export function paymentEndpoint(server: Server, secret: string): RequestListener {
  return async (request, response) => {
    const end = (status: number, message = '') => response.writeHead(status).end(message)
    try {
      const body = await text(request)
      const signature = Buffer.from(String(request.headers['x-signature']), 'hex')
      const expected = createHmac('sha256', secret).update(body).digest()
      if (signature.length !== expected.length || !timingSafeEqual(signature, expected)) return end(401)
      const { reference, ...event } = JSON.parse(body)
      const delivery = await server.deliver(reference, event)
      if (delivery.kind === 'unknown') return end(404)
      if (delivery.kind === 'rejected') return end(422, delivery.problem)
      end(204) // accepted, duplicate or closed: nothing is left to do
    } catch {
      end(503) // the store cannot be reached: the service sends it again
    }
  }
}

export function listenForPayments(server: Server, secret: string, port: number) {
  return createHttpServer(paymentEndpoint(server, secret)).listen(port, '127.0.0.1')
}
