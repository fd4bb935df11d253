/** The cost of a call for its client: ours, the official one, and raw `fetch` sending the same legs to the same server. */

import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { createServer, generateKey, type Server } from 'rondo'
import { type Aim, aimTable } from './aim.ts'
import type { Report, RunBench } from './bench.ts'
import type { CallCost } from './caller/child.ts'
import { fixed, median, medianRatio } from './stat.ts'

const CHILD = fileURLToPath(new URL('./caller/child.js', import.meta.url))
const CLIENTS = ['rondo', 'official', 'fetch'] as const
const QUESTIONS = [0, 1, 3] as const

type Costs = Map<string, CallCost[]>

function createAsker(): Server {
  const server = createServer({ name: 'asker', version: '1.0.0', keys: generateKey(), log: 'off' })
  const schema = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] }
  for (const questions of QUESTIONS) {
    server.tool(`ask${questions}`, {}, async (_args, ctx) => {
      let text = ''
      for (let i = 0; i < questions; i++) text += (await ctx.ask(`q${i}`, { message: `${i}?`, schema })).value
      return text || 'nothing asked'
    })
  }
  return server
}

function measure(client: string, url: string, questions: number, calls: number): Promise<CallCost> {
  const args = [CHILD, client, url, String(questions), String(calls)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) => {
      if (code === 0) resolve(JSON.parse(text))
      else reject(new Error(`The client "${client}" ended with ${code}`))
    })
  })
}

export const run: RunBench = async ({ quick, progress }) => {
  const [rounds, calls] = quick ? [3, 60] : [5, 500]
  const server = createAsker()
  const { url } = await server.listen({ port: 0, signals: false })
  const costs: Costs = new Map()
  for (let round = 0; round < rounds; round++) {
    for (const questions of QUESTIONS) {
      for (const client of CLIENTS) {
        progress(`client: round ${round + 1} of ${rounds}, ${client}, ${questions} questions`)
        const key = `${client} ${questions}`
        costs.set(key, [...(costs.get(key) ?? []), await measure(client, url, questions, calls)])
      }
    }
  }
  await server.close()
  return toReport(costs)
}

function toReport(costs: Costs): Report {
  const cpuOf = (client: string, questions: number): number[] =>
    (costs.get(`${client} ${questions}`) ?? []).map(({ cpuMicros }) => cpuMicros)
  const wallOf = (client: string, questions: number): number[] =>
    (costs.get(`${client} ${questions}`) ?? []).map(({ wallMicros }) => wallMicros)
  const rows = QUESTIONS.map((questions) => [
    String(questions),
    ...CLIENTS.map((client) => fixed(median(cpuOf(client, questions)))),
    `${fixed(medianRatio(cpuOf('official', questions), cpuOf('rondo', questions)), 1)}×`,
    `${fixed(medianRatio(cpuOf('fetch', questions), cpuOf('rondo', questions)), 1)}×`,
    ...CLIENTS.map((client) => fixed(median(wallOf(client, questions)))),
  ])
  const columns = [
    'questions',
    'rondo CPU µs',
    'official CPU µs',
    'fetch CPU µs',
    'official ÷ rondo',
    'fetch ÷ rondo',
  ]
  const times = ['rondo µs', 'official µs', 'fetch µs']
  const title = 'Cost of one call for its client, by the number of questions, one call after the other'
  const aims = QUESTIONS.map((questions): Aim => {
    const found = medianRatio(cpuOf('official', questions), cpuOf('rondo', questions))
    return { what: `${questions} questions: official ÷ rondo`, found, unit: '×', least: 3.5 }
  })
  const costTable = { title, mark: 'client', columns: [...columns, ...times], rows }
  return { tables: [aimTable(aims, 'client-aims'), costTable], data: Object.fromEntries(costs) }
}
