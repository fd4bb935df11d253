import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

// Plain and JSON reports: the second is what `npm run coverage:spec` reads.
const source = (path: string): string => new URL(`./packages/${path}.ts`, import.meta.url).pathname

export const alias = [
  { find: /^rondo$/, replacement: source('rondo/src/index') },
  { find: /^rondo\/client\/oauth$/, replacement: source('rondo/src/client-oauth') },
  { find: /^rondo\/([a-z-]+)$/, replacement: source('rondo/src/$1') },
  { find: /^@rondo\/([a-z-]+)$/, replacement: source('$1/src/index') },
]

const CARRIERS = ['test/scenarios/**/*.test.ts', 'test/interop/**/*.test.ts']

export default defineConfig({
  resolve: { alias },
  test: {
    projects: [
      // These keep no state in modules: loading them once for all files of a worker is half of their time.
      { extends: true, test: { name: 'parts', include: ['packages/*/src/**/*.test.ts'], isolate: false } },
      { extends: true, test: { name: 'carriers', include: CARRIERS, isolate: false } },
      {
        extends: true,
        test: {
          name: 'whole',
          include: ['test/**/*.test.ts', 'examples/**/*.test.ts'],
          exclude: ['**/node_modules/**', '**/*.long.test.ts', ...CARRIERS],
        },
      },
    ],
    // Two more than there are cores: many tests wait for processes they started, and three workers leave half of two cores idle.
    maxWorkers: Math.max(2, availableParallelism()) + 2,
    // Generous, because a busy machine is not a failure: only a test that hangs gets here.
    testTimeout: 180_000,
    hookTimeout: 300_000,
    // Polling ends as soon as it succeeds; the default of a second is too little on a busy machine.
    expect: { poll: { timeout: 120_000, interval: 20 } },
    reporters: ['default', ['json', { outputFile: 'test-report.json' }]],
  },
})
