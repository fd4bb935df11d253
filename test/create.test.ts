/** `npm create rondo`: what the command refuses, and the project that it creates. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type Answers, connect } from 'rondo/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Creator, createCreator, run } from './support/created-project.ts'

const children: ChildProcess[] = []
let creator: Creator
let scratch: string

beforeAll(() => {
  creator = createCreator()
  scratch = creator.folder
})

afterAll(() => {
  for (const child of children) child.kill('SIGKILL')
  creator.remove()
})

describe('the command', () => {
  it.each([
    [['--help'], 0, 'Usage: npm create rondo <folder>'],
    [['--version'], 0, '0.1.0'],
    [[], 1, 'Name a folder for the project: npm create rondo my-server'],
    [['a', 'b'], 1, 'Name one folder; got a, b.'],
    [['a', '--colour'], 1, '"npm create rondo -- --help" lists the options.'],
    [['a', '--rondo', './nowhere.tgz'], 1, 'There is no file ./nowhere.tgz.'],
    [['full'], 1, 'full is not empty: it contains note.txt. Name a folder that does not exist yet.'],
    [['full/note.txt'], 1, 'full/note.txt is a file.'],
  ])('%j', (args, status, text) => {
    mkdirSync(join(scratch, 'full'), { recursive: true })
    writeFileSync(join(scratch, 'full/note.txt'), 'mine')
    const ran = creator.create(args)
    expect(ran.output).toContain(text)
    expect(ran.output).not.toContain('    at ')
    expect(ran.status).toBe(status)
    expect(existsSync(join(scratch, 'a'))).toBe(false)
    expect(readdirSync(join(scratch, 'full'))).toEqual(['note.txt'])
    expect(readFileSync(join(scratch, 'full/note.txt'), 'utf8')).toBe('mine')
  })

  it.each([
    ['My Server', 'my-server'],
    ['zod', 'zod-server'],
    ['...', 'my-server'],
    ['deep/er/one', 'one'],
  ])('names the project in %j %s', (folder, name) => {
    const at = join('names', folder.replace('...', '___'))
    const { status, output } = creator.create([at])
    expect(status).toBe(0)
    expect(output).toContain(folder.includes(' ') ? '  cd "names/My Server"' : `  cd ${at}`)
    const manifest = JSON.parse(readFileSync(join(scratch, at, 'package.json'), 'utf8'))
    expect(manifest).toMatchObject({ name, type: 'module', dependencies: { rondo: '^0.1.0' } })
    expect(readFileSync(join(scratch, at, 'src/server.ts'), 'utf8')).toContain(`name: '${name}'`)
    const listed = JSON.parse(readFileSync(join(scratch, at, 'server.json'), 'utf8'))
    expect([listed.name, manifest.mcpName]).toEqual([`com.example/${name}`, `com.example/${name}`])
    expect(readFileSync(join(scratch, at, 'AGENTS.md'), 'utf8')).toContain('npm test')
  })

  it('names the package files that a project needs, so that npm downloads none of ours', () => {
    const { status } = creator.create(['vendored', '--rondo', creator.tarball])
    expect(status).toBe(0)
    const folder = join(scratch, 'vendored')
    const path = join(folder, 'package.json')
    const manifest = JSON.parse(readFileSync(path, 'utf8'))
    const parser = `file:${resolve('node_modules/eventsource-parser')}`
    /** Installs those of its dependencies that are ours, without a network. */
    const install = (names: readonly string[]): number | null => {
      const all = { ...manifest.dependencies, ...manifest.devDependencies }
      const ours = Object.fromEntries(names.map((name) => [name, all[name]]))
      const dependencies = { ...ours, 'eventsource-parser': parser }
      const overrides = { 'eventsource-parser': '$eventsource-parser' }
      writeFileSync(path, JSON.stringify({ name: 'vendored', dependencies, overrides }))
      rmSync(join(folder, 'node_modules'), { recursive: true, force: true })
      rmSync(join(folder, 'package-lock.json'), { force: true })
      const options = ['--offline', '--no-audit', '--no-fund', '--cache', join(folder, 'cache')]
      return run('npm', ['install', ...options], folder).status
    }
    expect(install(['rondo', '@rondo/cli', '@rondo/gateway'])).toBe(0)
    expect(
      run(process.execPath, ['node_modules/@rondo/cli/bin/rondo.js', 'help', 'bridge'], folder).status,
    ).toBe(0)
    // The control: without one of the files, npm looks for it elsewhere.
    expect(install(['rondo', '@rondo/cli'])).not.toBe(0)
  })

  it('takes a folder that contains only a new repository', () => {
    mkdirSync(join(scratch, 'fresh/.git'), { recursive: true })
    const { status, output } = creator.create(['.'], join(scratch, 'fresh'))
    expect(output).toContain('Created fresh in this folder.')
    expect(output).not.toContain('  cd ')
    expect(status).toBe(0)
  })
})

describe('the project that it creates', () => {
  let project: string
  beforeAll(() => {
    project = creator.project('shop')
  })

  it('depends on the versions that Rondo is tested with', () => {
    const root = JSON.parse(readFileSync('package.json', 'utf8'))
    const template = JSON.parse(readFileSync('packages/create-rondo/template/package.json', 'utf8'))
    const { rondo, '@rondo/cli': cli, ...others } = { ...template.dependencies, ...template.devDependencies }
    expect([rondo, cli]).toEqual([`^${root.version}`, `^${root.version}`])
    expect(JSON.parse(readFileSync('packages/create-rondo/package.json', 'utf8')).version).toBe(root.version)
    expect(root.devDependencies).toMatchObject(others)
  })

  it('passes its own type check and tests', () => {
    const { status, output } = run('npm', ['test'], project)
    expect(output).toContain('3 passed')
    expect(status).toBe(0)
  })

  it('has a type check that finds a mistake', () => {
    const file = join(project, 'src/mistake.ts')
    writeFileSync(file, 'export const first: string = [1][0]\n')
    const { status, output } = run(resolve('node_modules/.bin/tsc'), [], project)
    rmSync(file)
    expect(output).toContain('src/mistake.ts')
    expect(status).not.toBe(0)
  })

  const start = async (script: 'start' | 'dev', more: Record<string, string> = {}) => {
    // Runs the command of the script without npm and the shell between this process and the server.
    const { scripts } = JSON.parse(readFileSync(join(project, 'package.json'), 'utf8'))
    const [program = '', ...args] = (scripts[script] as string).split(' ')
    const path = program === 'node' ? [] : [join(project, 'node_modules/.bin', program)]
    const env = { ...process.env, PORT: '0', RONDO_KEYS: '', DATABASE_URL: '', NODE_ENV: '', ...more }
    const child = spawn(process.execPath, [...path, ...args], {
      cwd: project,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    children.push(child)
    const exit = once(child, 'exit').then(([code]) => code as number | null)
    let text = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
    }
    await expect.poll(() => child.exitCode !== null || /Serving \S+\n/.test(text)).toBe(true)
    return { child, exit, text: () => text, url: /Serving (\S+)/.exec(text)?.[1] ?? '' }
  }

  const answers: Answers = {
    elicitation({ message }) {
      const publishes = message.startsWith('Publish')
      const content: Record<string, string | boolean> = publishes
        ? { confirm: true }
        : { resolution: 'Fixed' }
      return { action: 'accept', content }
    },
  }

  it('builds, starts, asks, runs a task, and ends on SIGTERM', async () => {
    expect(run('npm', ['run', 'build'], project).status).toBe(0)
    const { url, child, exit } = await start('start')
    const client = await connect(url, { answers })
    const asked = await client.callTool('resolve_bug', { id: 7 })
    expect(asked.content).toMatchObject([{ text: 'Bug #7 resolved as Fixed.' }])
    const statuses: string[] = []
    const onTask = ({ status }: { status: string }): void => void statuses.push(status)
    const report = await client.callTool('report', { year: 2026 }, { onTask })
    expect(report.content).toMatchObject([{ text: 'Published 78 bugs of 2026.' }])
    expect(statuses).toContain('working')
    await client.close()
    child.kill('SIGTERM')
    expect(await exit).toBe(0)
    expect(statSync(join(project, '.rondo/key')).mode & 0o077).toBe(0)
  })

  it('serves with npm run dev, under the key that it has', async () => {
    const key = readFileSync(join(project, '.rondo/key'), 'utf8')
    const { url, child, exit } = await start('dev')
    const client = await connect(url, { answers })
    const asked = await client.callTool('resolve_bug', { id: 7 })
    expect(asked.content).toMatchObject([{ text: 'Bug #7 resolved as Fixed.' }])
    await client.close()
    child.kill('SIGTERM')
    await exit
    expect(readFileSync(join(project, '.rondo/key'), 'utf8')).toBe(key)
  })

  it('opens in the console, where its report is a task', async () => {
    const { scripts } = JSON.parse(readFileSync(join(project, 'package.json'), 'utf8'))
    const [program, ...args] = (scripts.console as string).split(' ').filter((word) => word !== '--open')
    expect(program).toBe('rondo')
    const command = ['node_modules/rondo/bin/rondo.js', ...args, '--instances', '1', '--port', '0', '--json']
    const { PATH = '' } = process.env
    const env = { PATH, HOME: scratch, RONDO_HOME: join(scratch, '.home') }
    const child = spawn(process.execPath, command, {
      cwd: project,
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    const exit = once(child, 'exit')
    const [line] = await Promise.race([once(child.stdout.setEncoding('utf8'), 'data'), exit])
    const { page, mcp } = JSON.parse(line as string)
    expect(await (await fetch(page)).text()).toContain('<title>Rondo console</title>')
    const client = await connect(mcp)
    expect(
      await client.start({ method: 'tools/call', name: 'report', arguments: { year: 2026 } }),
    ).toMatchObject({ status: 'task' })
    await client.close()
    child.kill('SIGTERM')
    expect(await exit).toEqual([0, null])
  })

  it('does not start in production without keys, and says how to make one', async () => {
    const { exit, text } = await start('start', { NODE_ENV: 'production' })
    expect(await exit).toBe(1)
    expect(text()).toContain('Rondo needs keys in production, and RONDO_KEYS is not set.')
  })

  it('names RONDO_KEYS if its value cannot be used', async () => {
    const { exit, text } = await start('start', { RONDO_KEYS: 'nonsense' })
    expect(await exit).toBe(1)
    expect(text()).toContain('RONDO_KEYS cannot be used')
  })
})
