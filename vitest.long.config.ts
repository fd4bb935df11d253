import { defineConfig } from 'vitest/config'

// The long forms of the suites under test/: `npm run test:security`, `npm run test:chaos`.
const src = (file: string): string => new URL(`./src/${file}.ts`, import.meta.url).pathname

export default defineConfig({
  resolve: {
    alias: [
      { find: /^rondo$/, replacement: src('index') },
      {
        find: /^rondo\/(testing|client|forms|oauth|sdk|sqlite|postgres|restate|otel)$/,
        replacement: src('$1'),
      },
    ],
  },
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 1_800_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000, interval: 20 } },
    fileParallelism: false,
    env: { RONDO_LONG: '1' },
  },
})
