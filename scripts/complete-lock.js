/**
 * Completes package-lock.json with the optional binaries of other platforms. npm leaves them out of the lock where the
 * registry it was made against does not have them, and `npm ci` then refuses the lock. Run it after every change of
 * dependencies: `node scripts/complete-lock.js`. It only adds what is missing and changes nothing else.
 */

import { readFileSync, writeFileSync } from 'node:fs'

const SYSTEMS = [
  'aix',
  'android',
  'darwin',
  'freebsd',
  'linux',
  'netbsd',
  'openbsd',
  'openharmony',
  'sunos',
  'win32',
]
const PROCESSORS = {
  x64: 'x64',
  arm64: 'arm64',
  ia32: 'ia32',
  arm: 'arm',
  armv7: 'arm',
  riscv64: 'riscv64',
  ppc64: 'ppc64',
  ppc64le: 'ppc64',
  s390x: 's390x',
  loong64: 'loong64',
  mips64el: 'mips64el',
  wasm32: 'wasm32',
  universal: undefined,
}

/** The platform that a name like `@scope/binding-linux-x64-musl` stands for; undefined if it names none. */
function platformOf(name) {
  const words = name.split('/').pop().split('-')
  const os = words.find((word) => SYSTEMS.includes(word))
  const cpu = words.map((word) => PROCESSORS[word]).find((value) => value !== undefined)
  if (os === undefined && cpu !== 'wasm32') return undefined
  const libc = words.some((word) => word.startsWith('musl')) ? 'musl' : undefined
  return {
    ...(cpu === undefined ? {} : { cpu: [cpu] }),
    ...(libc === undefined ? {} : { libc: [libc] }),
    ...(os === undefined ? {} : { os: [os] }),
  }
}

const lock = JSON.parse(readFileSync('package-lock.json', 'utf8'))
const { packages } = lock
let added = 0
for (const { optionalDependencies = {}, dev, version: _ } of Object.values(packages)) {
  for (const [name, version] of Object.entries(optionalDependencies)) {
    const path = `node_modules/${name}`
    const platform = platformOf(name)
    if (packages[path] !== undefined || platform === undefined) continue
    packages[path] = {
      version: version.replace(/^[^\d]*/, ''),
      ...platform,
      ...(dev ? { dev } : {}),
      optional: true,
    }
    added += 1
  }
}
lock.packages = Object.fromEntries(Object.entries(packages).sort(([a], [b]) => (a < b ? -1 : 1)))
writeFileSync('package-lock.json', `${JSON.stringify(lock, null, 2)}\n`)
console.log(`${added} optional packages of other platforms added`)
