/** Calls the tool `waits` and aborts the call as soon as it is a task; returns the task's id. */

import type { Client, FlowOptions } from 'rondo/client'
import { expect } from 'vitest'

export async function abortTask(client: Client, options: FlowOptions = {}): Promise<string> {
  const stop = new AbortController()
  let taskId = ''
  const onTask: FlowOptions['onTask'] = (task) => {
    taskId = task.taskId
    stop.abort(new Error('enough'))
  }
  const call = client.callTool('waits', {}, { ...options, signal: stop.signal, onTask })
  await expect(call).rejects.toThrow('enough')
  return taskId
}
