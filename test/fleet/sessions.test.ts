import { describe } from 'vitest'
import { shareMemory } from '../support/fleet-stores.ts'
import { describeSessions } from './sessions.ts'

describe('a fleet that shares a store in memory', () => describeSessions(shareMemory))
