import { generateKey } from 'rondo'
import { expect, it } from 'vitest'
import { send } from '../test/support/task-client.ts'
import { limited } from './extension.ts'

it('the extension limits calls, shows the counts on its page, and reports them by its method', async () => {
  const server = limited({ keys: generateKey(), log: 'off' })
  const call = () => send(server, 'tools/call', { name: 'time', arguments: {} })
  expect((await call()).result).not.toHaveProperty('isError')
  await call()
  expect((await call()).result).toMatchObject({ isError: true })
  expect((await send(server, 'example.com/calls', {})).result).toMatchObject({ calls: 3 })
  const page = await server.fetch(new Request('http://127.0.0.1/calls'))
  expect(await page.text()).toBe('anonymous: 3\n')
  await server.close()
})
