import { createServer, inputRequired, type ServerOptions } from 'rondo'

/** The manual form: return what you need, read the answers yourself. The state is sealed all the same. */
export function provisioner(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'provisioner', version: '1.0.0', ...options })
  server.tool('provision', { description: 'Provision a database' }, (_args, ctx) => {
    const region = ctx.inputResponses?.region
    if (ctx.requestState === 'asked' && region && 'action' in region) {
      if (region.action !== 'accept') return 'Nothing was provisioned.'
      return `Provisioned in ${region.content?.region}.`
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
