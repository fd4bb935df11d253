import { createGateway, type GatewayOptions } from '@rondo/gateway'

/** Serves two servers as one, and asks before anything is destroyed. */
export function tools(options?: Partial<GatewayOptions>) {
  return createGateway({
    name: 'tools',
    version: '1.0.0',
    upstreams: {
      crm: { url: 'https://crm.example/mcp', credentials: (caller) => ({ 'X-User': caller?.subject ?? '' }) },
      files: { command: 'node', args: ['files.js'] },
    },
    decide: ({ annotations }) => (annotations.destructiveHint === true ? 'confirm' : 'allow'),
    ...options,
  })
}

if (process.argv[1] === import.meta.filename) {
  const { url } = await tools().listen({ port: 3000 })
  console.log(`Serving ${url}`)
}
