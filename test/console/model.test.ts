/** The sentences of the console page about a task. */

import { expect, it } from 'vitest'
import { sayCall, stateOf } from '../../packages/cli/console/model.ts'

const MINUTE = 60_000

it.each([
  [45_000, '45 s'],
  [14 * MINUTE + 5_000, '14 min 5 s'],
  [119 * MINUTE, '1 h 59 min'],
  [3 * 24 * 60 * MINUTE, '72 h 0 min'],
])('the page says how long a task of %d ms still sleeps: %s', (ms, text) => {
  const stored = { dueAt: 1_000 + ms } as never
  const task = { id: 'a', status: 'working', turns: [], failures: 0, stored } as never
  expect(stateOf(task, 1_000).says).toBe(`The task sleeps and wakes in ${text}.`)
})

it.each([
  ['book', ['room=1', 'note=Good day'], "npx rondo call URL book room=1 'note=Good day'"],
  ["a';touch x;'", ["$(id)=`id`'"], "npx rondo call URL 'a'\\'';touch x;'\\''' '$(id)=`id`'\\'''"],
  ['a\nid', ['b\u001b[201~\rid=1'], "npx rondo call URL 'a id' 'b[201~ id=1'"],
  ['--args=/etc/passwd', ['\u200b-x=1'], 'npx rondo call URL … …'],
])(
  'T23 the call %j with the arguments %j is one command of a shell, each name one word',
  (tool, words, command) => {
    expect(sayCall('URL', tool, words)).toBe(command)
  },
)
