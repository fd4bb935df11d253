/** The scenarios on Rondo's own server over stdio, as a separate process. Effects are reported on standard error. */
import { createServer } from 'rondo'
import { createWorld, scenarios } from '../scenarios/scenario.ts'

const server = createServer({ name: 'scenarios', version: '1.0.0', log: 'off' })
const world = createWorld()
for (const scenario of scenarios) scenario.declare(server, world)
await server.stdio()
for (const { name } of world.effects) console.error(`effect ${name}`)
