import { createBench } from 'rondo/testing'
import { expect, it } from 'vitest'
import { reports } from './12-tasks.ts'

it('the report begins in rounds and publishes as a task, across a restart', async () => {
  const task = createBench(reports).task('report', { year: 2026 })

  expect(await task.next()).toMatchObject({ questions: { format: {} } })
  expect(task.taskId).toBeUndefined()
  expect(await task.next({ format: { format: 'pdf' } })).toMatchObject({ questions: { sure: {} } })
  expect(task.messages.at(-1)).toBe('month 12 of 12')
  await task.restart()

  const done = await task.next({ sure: { confirm: true } })
  expect(done).toMatchObject({ kind: 'complete', text: 'Published the pdf report of 2026.' })
})
