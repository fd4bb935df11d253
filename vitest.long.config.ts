import { defineConfig } from 'vitest/config'

// The long forms of the suites under test/: `npm run test:security`, `npm run test:chaos`.
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 1_800_000,
    hookTimeout: 120_000,
    fileParallelism: false,
    env: { RONDO_LONG: '1', RONDO_QUIET: '1' },
  },
})
