/** Findings about this server, each with the flow that showed it. */

import type { JSX } from 'preact'
import type { Model } from './model.ts'
import { Ago, Empty } from './parts.tsx'

export function Doctor({
  model,
  now,
  link,
  file,
}: {
  model: Model
  now: number
  link: (path: string) => string
  file: string
}): JSX.Element {
  const findings = [...model.findings].reverse()
  return (
    <section aria-labelledby="doctor-title">
      <h1 id="doctor-title">Doctor</h1>
      {findings.length === 0 ? (
        <Empty>
          Nothing is wrong with what was called so far. <code>rondo doctor {file}</code> examines the server
          from outside.
        </Empty>
      ) : (
        <ul class="findings">
          {findings.map((finding, i) => (
            <li key={`${finding.at}-${i}`} class={finding.level}>
              <strong>{finding.level}</strong> {finding.text}{' '}
              {finding.flow && <a href={link(`flow/${finding.flow}`)}>flow</a>}{' '}
              <Ago at={finding.at} now={now} />
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}
