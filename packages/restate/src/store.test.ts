/** Checks of the options that need no Restate; test/restate.test.ts has the rest. */

import { createTaskId } from 'rondo/internal'
import { describe, expect, it } from 'vitest'
import { assertEndpoint } from './connection.ts'
import { createRestateStore, type RestateStoreOptions } from './store.ts'

const ingress = 'http://127.0.0.1:1'
const isOld = Number(process.versions.node.split('.')[0]) < 22

describe('the options of the Restate store', () => {
  it.each<[Partial<RestateStoreOptions>, RegExp]>([
    [{ ingress: 'restate:8080' }, /must be an http:\/\/ or https:\/\/ URL; got "restate:8080"/],
    [{ namespace: 'my app' }, /namespace must begin with a letter/],
    [{ admin: '' }, /must be an http/],
  ])('are checked: %j', (options, message) => {
    expect(() => createRestateStore({ ingress, ...options })).toThrow(message)
  })

  it.runIf(isOld)('J3 name the version of Node that a process needs to run tasks', () => {
    expect(() => createRestateStore({ ingress, endpoint: { port: 9080 } })).toThrow(
      /needs Node 22 or later to run tasks/,
    )
  })

  it.each([
    '0.0.0.0',
    '::',
    '10.0.0.1',
    '127.evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '',
  ])('J3 require keys for an endpoint that others can reach: %j', (host) => {
    expect(() => assertEndpoint({ port: 9080, host })).toThrow(/endpoint.identityKeys is missing/)
    expect(() => assertEndpoint({ port: 9080, host, identityKeys: [] })).toThrow(/identityKeys is missing/)
  })

  it.skipIf(isOld)('J3 require no keys on a loopback address', () => {
    const identityKeys = ['publickeyv1_x']
    expect(() => assertEndpoint({ port: 9080, host: '0.0.0.0', identityKeys })).not.toThrow()
    for (const host of [undefined, 'localhost', '::1', '127.0.0.2'])
      expect(() => assertEndpoint({ port: 9080, host })).not.toThrow()
  })

  it('J3 require a port', () => {
    expect(() => assertEndpoint({ port: -1 })).toThrow(/port number/)
  })

  it('J3 say that a process without an endpoint cannot run tasks', async () => {
    const store = createRestateStore({ ingress })
    await expect(store.createEngine().serve(async () => ({ kind: 'release' }))).rejects.toThrow(
      /needs the option endpoint/,
    )
    await expect(store.tasks.stats()).rejects.toThrow(/needs the address of the admin API/)
    await store.close()
  })
})

it('J3 an error names the address that did not respond', async () => {
  const store = createRestateStore({ ingress: [ingress, 'http://127.0.0.1:2'], retryMs: 10 })
  const owner = { tenant: 't', principal: 'p' }
  await expect(store.createEngine().get(createTaskId(), owner)).rejects.toMatchObject({
    code: 'STORE_UNAVAILABLE',
    message: expect.stringContaining(
      'Restate at http://127.0.0.1:1, http://127.0.0.1:2 did not answer a call',
    ),
  })
  await store.close()
  await expect(store.createEngine().get(createTaskId(), owner)).rejects.toThrow('This store is closed')
})
