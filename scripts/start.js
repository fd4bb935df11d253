/** `npm start`: opens an example in the console, `examples/start.ts` unless another file is named. */

const words = process.argv.slice(2)
const hasFile = words.some((word) => /\.[cm]?[jt]s$/.test(word))
process.argv.splice(2, words.length, 'console', ...(hasFile ? [] : ['examples/start.ts']), ...words)
await import('../packages/cli/bin/rondo.js')
