import {
  allowUrlHosts,
  type Client,
  connect,
  type FormHandler,
  maxRoundsPerServer,
  noSecretsInForms,
  type Round,
  refuseSampling,
  type Target,
} from 'rondo/client'

// #region policy
const perServer = maxRoundsPerServer(50, { within: 60 * 60 * 1000 })

/** Asks a person only what this company lets servers ask. */
export function connectCarefully(
  target: Target,
  form: FormHandler,
  audit: (line: string) => void,
): Promise<Client> {
  const record = ({ server, request, round, questions }: Round): undefined => {
    audit(`${server.name} ${request.method} round ${round}: ${Object.keys(questions).join(', ')}`)
  }
  return connect(target, {
    answers: { elicitation: { form, url: () => ({ action: 'decline' }) } },
    onRound: [record, refuseSampling(), allowUrlHosts(['*.example.com']), noSecretsInForms(), perServer],
  })
}
// #endregion
