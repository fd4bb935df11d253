import { createBench, decline } from 'rondo/testing'
import { expect, it } from 'vitest'
import { createTracker } from '../src/server.ts'

it('resolve_bug asks how the bug was resolved, and continues on another instance', async () => {
  const call = createBench(createTracker).tool('resolve_bug', { id: 7 })
  expect(await call.next()).toMatchObject({ questions: { resolution: {} } })
  const done = await call.otherInstance().next({ resolution: { resolution: 'Fixed' } })
  expect(done).toMatchObject({ kind: 'complete', text: 'Bug #7 resolved as Fixed.' })
})

it('resolve_bug ends politely if the user declines', async () => {
  const done = await createBench(createTracker).tool('resolve_bug', { id: 7 }).run({ resolution: decline })
  expect(done).toMatchObject({ result: { isError: true } })
})

it('the report is published as a task, across a restart', async () => {
  const task = createBench(createTracker).task('report', { year: 2026 })
  expect(await task.next()).toMatchObject({ questions: { sure: {} } })
  await task.restart()
  const done = await task.next({ sure: { confirm: true } })
  expect(done).toMatchObject({ kind: 'complete', text: 'Published 78 bugs of 2026.' })
})
