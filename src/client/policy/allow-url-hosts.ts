import type { RoundPolicy } from '../round-policy.ts'

/** Lets a server send people to these hosts only. `*.example.com` stands for every host below example.com. */
export function allowUrlHosts(hosts: readonly string[]): RoundPolicy {
  const exact = new Set(hosts.filter((host) => !host.startsWith('*.')).map((host) => host.toLowerCase()))
  const below = hosts.filter((host) => host.startsWith('*.')).map((host) => host.slice(1).toLowerCase())
  return ({ questions }) => {
    for (const [key, question] of Object.entries(questions)) {
      if (question.method !== 'elicitation/create' || question.params.mode !== 'url') continue
      const { hostname } = new URL(question.params.url)
      if (exact.has(hostname) || below.some((suffix) => hostname.endsWith(suffix))) continue
      return { kind: 'refuse', reason: `"${key}" leads to ${hostname}, which is not on the list` }
    }
    return undefined
  }
}
