import { defineConfig } from 'vitest/config'

// Plain and JSON reports: the second is what `npm run coverage:spec` reads.
export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts', 'examples/**/*.test.ts'],
    exclude: ['**/node_modules/**', 'dist/**', '**/*.long.test.ts'],
    testTimeout: 20_000,
    hookTimeout: 60_000,
    reporters: ['default', ['json', { outputFile: 'test-report.json' }]],
    env: { RONDO_QUIET: '1' },
  },
})
