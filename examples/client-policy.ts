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

// #region policy
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
// #endregion
