import {
  allowUrlHosts,
  type Client,
  type ConnectTarget,
  connect,
  type FormHandler,
  maxRoundsPerServer,
  noSecretsInForms,
  type PolicyRound,
  refuseSampling,
} from 'rondo/client'

const perServer = maxRoundsPerServer(50, { withinMs: 60 * 60 * 1000 })

/** Asks a person only what this company lets servers ask. */
export function connectCarefully(
  target: ConnectTarget,
  form: FormHandler,
  audit: (line: string) => void,
): Promise<Client> {
  const record = ({ server, request, round, questions }: PolicyRound): undefined => {
    audit(`${server.name} ${request.method} round ${round}: ${Object.keys(questions).join(', ')}`)
  }
  return connect(target, {
    answers: { elicitation: { form, url: () => ({ action: 'decline' }) } },
    onRound: [record, refuseSampling(), allowUrlHosts(['*.example.com']), noSecretsInForms(), perServer],
  })
}

if (process.argv[1] === import.meta.filename) {
  const target = process.argv[2] ?? 'http://127.0.0.1:3000/mcp'
  // Stands for a person: says "Fixed" to everything.
  const form: FormHandler = () => ({ action: 'accept', content: { resolution: 'Fixed' } })
  const client = await connectCarefully(target, form, console.log)
  const args = { workItemId: 4522, fields: { 'System.State': 'Resolved' } }
  console.log((await client.callTool('update_work_item', args)).content)
  await client.close()
}
