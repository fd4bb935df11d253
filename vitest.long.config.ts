import { defineConfig } from 'vitest/config'
import { alias } from './vitest.config.ts'

// The long forms of the suites under test/ (`npm run test:security`, `npm run test:chaos`), which set RONDO_LONG, and the
// files that only `npm run test:long` runs: `*.long.test.ts`.
export default defineConfig({
  resolve: { alias },
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 1_800_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000, interval: 20 } },
    fileParallelism: false,
  },
})
