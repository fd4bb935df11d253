import { expect, it } from 'vitest'
import { createChangeBus } from './subscription.ts'

it('the bus notifies every listener until it unsubscribes', () => {
  const bus = createChangeBus()
  const heard: string[] = []
  const leave = bus.subscribe((change) => heard.push(`a ${change.kind}`))
  bus.subscribe((change) => heard.push(`b ${change.kind}`))
  bus.publish({ kind: 'tools' })
  leave()
  leave()
  bus.publish({ kind: 'prompts' })
  expect(heard).toEqual(['a tools', 'b tools', 'b prompts'])
})

it('the bus keeps two subscriptions of one function apart', () => {
  const bus = createChangeBus()
  let heard = 0
  const listener = () => heard++
  const leave = bus.subscribe(listener)
  bus.subscribe(listener)
  leave()
  bus.publish({ kind: 'tools' })
  expect(heard).toBe(1)
})

it('the bus notifies the other listeners if one throws', () => {
  const faults: unknown[] = []
  const bus = createChangeBus((error) => faults.push(error))
  let heard = 0
  bus.subscribe(() => {
    throw new Error('mine')
  })
  bus.subscribe(() => heard++)
  bus.publish({ kind: 'tools' })
  expect(heard).toBe(1)
  expect(faults).toHaveLength(1)
})
