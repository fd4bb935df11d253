/**
 * How much an older server logs is one setting for the whole session. It is lowered when a call wants to hear more; what a
 * call did not ask for is filtered where the notification arrives.
 */

import { LOG_LEVELS, type LogLevel } from '../../protocol/wire.ts'

export interface LogLevelSetting {
  ensure(level: LogLevel | undefined): Promise<void>
  /** A new session knows nothing of it. */
  forget(): void
}

export function createLogLevel(set: (level: LogLevel) => Promise<void>): LogLevelSetting {
  let known = LOG_LEVELS.length
  return {
    async ensure(level) {
      if (level === undefined || LOG_LEVELS.indexOf(level) >= known) return
      known = LOG_LEVELS.indexOf(level)
      await set(level)
    },
    forget() {
      known = LOG_LEVELS.length
    },
  }
}
