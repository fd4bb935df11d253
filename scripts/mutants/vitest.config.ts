import { defineConfig } from 'vitest/config'
import { alias } from '../../vitest.config.ts'

/** The tests that `npm run mutants` runs, which run.js chooses. */
export default defineConfig({
  resolve: { alias },
  test: {
    include: (process.env.RONDO_MUTANTS ?? '').split(','),
    runner: './scripts/mutants/worker.js',
    pool: 'threads',
    isolate: false,
    maxWorkers: 1,
    testTimeout: 600_000,
    hookTimeout: 20_000,
  },
})
