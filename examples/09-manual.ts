import { createServer, type ElicitResult, inputRequired, type ServerOptions } from 'rondo'

/** The manual form: return the input requests and read the responses yourself. The state is still sealed. */
export function provisioner(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'provisioner', version: '1.0.0', ...options })
  server.tool('provision', { description: 'Provision a database' }, (_args, ctx) => {
    const answer = ctx.inputResponses?.region as ElicitResult | undefined
    if (ctx.requestState === 'asked' && answer !== undefined) {
      if (answer.action !== 'accept') return 'Nothing was provisioned.'
      return `Provisioned in ${answer.content?.region}.`
    }
    return inputRequired({
      requestState: 'asked',
      inputRequests: {
        region: {
          method: 'elicitation/create',
          params: {
            mode: 'form',
            message: 'Which region should the database live in?',
            requestedSchema: {
              type: 'object',
              properties: { region: { type: 'string', enum: ['eu', 'us'] } },
              required: ['region'],
            },
          },
        },
      },
    })
  })
  return server
}

/** For `npx rondo console examples/09-manual.ts`. */
export default (options?: Partial<ServerOptions>) => provisioner(options)

if (process.argv[1] === import.meta.filename) {
  const { url } = await provisioner().listen()
  console.log(`Serving ${url}\nCall it: npx rondo call ${url} provision`)
}
