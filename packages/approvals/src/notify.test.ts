import { createHmac } from 'node:crypto'
import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, describe, expect, it } from 'vitest'
import { createDeskBench, ORIGIN } from '../../../test/support/approval-desk.ts'
import { email, slack, webhook } from './index.ts'

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closing.push(() => new Promise((resolve) => server.close(resolve)))
  return (server.address() as AddressInfo).port
}

interface Received {
  readonly path: string
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: string
}

/** An HTTP server that keeps what it receives. */
async function receive(answer: (received: Received) => { status?: number; body?: unknown }) {
  const received: Received[] = []
  const server = createServer(async (request, response) => {
    const one = { path: request.url ?? '', headers: request.headers, body: await text(request) }
    received.push(one)
    const { status = 200, body = {} } = answer(one)
    response.writeHead(status, { 'content-type': 'application/json', connection: 'close' })
    response.end(JSON.stringify(body))
  })
  return { url: `http://127.0.0.1:${await listen(server)}`, received }
}

describe('webhook', () => {
  it('V7 posts a signed message, and again after a failure', async () => {
    let isDown = true
    const { url, received } = await receive(() => ({ status: isDown ? 500 : 200 }))
    const secret = 'a secret of the operator'
    const desk = createDeskBench({ notify: [webhook({ url, secret })] })
    closing.push(desk.close)
    const { id, hook } = await desk.ask()
    await desk.approvals.desk().drain()
    isDown = false
    desk.pass(4_000)
    await desk.approvals.desk().drain()
    expect(received).toHaveLength(2)
    const { headers, body } = received[1] as Received
    const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`
    const signature = createHmac('sha256', secret).update(signed).digest('base64')
    expect(headers['webhook-signature']).toBe(`v1,${signature}`)
    expect(JSON.parse(body)).toMatchObject({ kind: 'asked', id, url: `${ORIGIN}/approvals/r/${id}` })
    expect(body).not.toContain(hook)
  })

  it('V7 keeps the id of a message that is sent again, and gives every other message one of its own', async () => {
    let isDown = true
    const { url, received } = await receive(() => ({ status: isDown ? 500 : 200 }))
    const desk = createDeskBench({ notify: [webhook({ url, secret: 'a secret of the operator' })] })
    closing.push(desk.close)
    const { id } = await desk.ask({ remindMs: 3_600_000 })
    const drain = () => desk.approvals.desk().drain()
    await drain()
    isDown = false
    desk.pass(4_000)
    await drain()
    desk.pass(3_600_000)
    await drain()
    await desk.decide(id, 'ann', 'approve')
    await drain()
    const ids = received.map(({ headers }) => headers['webhook-id'])
    expect(received.map(({ body }) => JSON.parse(body).kind)).toEqual([
      'asked',
      'asked',
      'reminder',
      'update',
    ])
    expect(ids[1]).toBe(ids[0])
    expect(new Set(ids).size).toBe(3)
  })
})

describe('a notifier that hangs', () => {
  it('V7 delays neither the delivery of a decision nor the messages of another notifier', async () => {
    const held: (() => void)[] = []
    const heard: string[] = []
    const hangs = () => new Promise<void>((resolve) => held.push(resolve))
    const works = ({ id, kind }: { id: string; kind: string }) => void heard.push(`${kind} ${id}`)
    const desk = createDeskBench({ notify: [hangs, works] })
    closing.push(desk.close)
    // Before the notifier that hangs is given up.
    const quick = { timeout: 20_000 }
    const first = await desk.ask()
    await expect.poll(() => held.length, quick).toBe(1)
    const second = await desk.ask()
    await expect.poll(() => heard, quick).toEqual([`asked ${first.id}`, `asked ${second.id}`])
    await desk.decide(first.id, 'ann', 'approve')
    await expect.poll(() => desk.delivered, quick).toMatchObject([{ hook: first.hook }])
    for (const release of held) release()
  })

  it('V7 is sent at most sixty messages in a minute, and the others later', async () => {
    const held: (() => void)[] = []
    const hangs = () => new Promise<void>((resolve) => held.push(resolve))
    const desk = createDeskBench({ notify: [hangs] })
    closing.push(desk.close)
    for (let i = 0; i < 70; i++) await desk.ask()
    await expect.poll(() => held.length, { timeout: 20_000 }).toBe(60)
    for (const release of held.splice(0)) release()
    await desk.approvals.desk().drain()
    desk.pass(60_000)
    const drained = desk.approvals.desk().drain()
    await expect.poll(() => held.length, { timeout: 20_000 }).toBe(10)
    for (const release of held) release()
    await drained
  })
})

describe('slack', () => {
  const signingSecret = 'signing secret of Slack'
  const users: Readonly<Record<string, string>> = {
    'T1/U-ann': 'ann',
    'T1/U-erin': 'erin',
    'T1/U-eve': 'eve',
  }
  async function createSlack(knowsPeople = true) {
    const { url: api, received } = await receive(({ headers }) => ({
      body: headers.authorization === 'Bearer xoxb-1' ? { ok: true, ts: '17.1' } : { ok: false },
    }))
    const desk = createDeskBench({
      notify: [slack({ token: 'xoxb-1', signingSecret, channel: 'C1', api })],
      ...(knowsPeople && {
        person: ({ kind, subject }) => (kind === 'slack' ? users[subject] : subject),
      }),
    })
    closing.push(desk.close)
    /** Sends what Slack sends for a click. */
    const click = async (
      id: string,
      action: string,
      user: string,
      {
        secret = signingSecret,
        ageS = 0,
        team = 'T1',
        replyTo,
      }: { secret?: string; ageS?: number; team?: string; replyTo?: string } = {},
    ) => {
      const actions = [{ action_id: action, value: id }]
      const who = { id: user, team_id: team, name: user }
      const payload = { type: 'block_actions', user: who, actions, response_url: replyTo }
      const body = new URLSearchParams({ payload: JSON.stringify(payload) }).toString()
      const timestamp = Math.floor(desk.host.now() / 1000) - ageS
      const hmac = createHmac('sha256', secret).update(`v0:${timestamp}:${body}`).digest('hex')
      const headers = { 'x-slack-request-timestamp': String(timestamp), 'x-slack-signature': `v0=${hmac}` }
      const response = await desk.visit('/callbacks/slack', undefined, { method: 'POST', body, headers })
      return { status: response.status, text: await response.text() }
    }
    const state = async (id: string) => (await desk.approvals.desk().get(id))?.state
    return { desk, received, click, state }
  }

  it('posts a message with buttons, takes a click, and updates the message', async () => {
    const { desk, received, click, state } = await createSlack()
    const { id } = await desk.ask({ message: 'Deploy <!channel> *now* <https://evil.example|here>?' })
    await desk.approvals.desk().drain()
    expect(received[0]?.path).toBe('/chat.postMessage')
    const posted = JSON.parse(received[0]?.body ?? '') as {
      channel: string
      blocks: { text?: { type: string } }[]
    }
    expect(posted.channel).toBe('C1')
    const types = posted.blocks.flatMap((block) => block.text?.type ?? [])
    expect(new Set(types)).toEqual(new Set(['plain_text']))
    expect((await click(id, 'approve', 'U-ann')).text).toContain('You have approved this.')
    expect((await desk.approvals.desk().get(id))?.votes).toMatchObject([{ person: 'ann', via: 'slack' }])
    await desk.approvals.desk().drain()
    expect(received.at(-1)?.path).toBe('/chat.update')
    expect(received.at(-1)?.body).toContain('"ts":"17.1"')
    // The message may still show its buttons elsewhere.
    expect((await click(id, 'deny', 'U-ann')).text).toContain('Nothing was changed')
    expect(await state(id)).toBe('approved')
  })

  it('V2 T8 sends texts of callers without markup, in the blocks and in the text for notifications', async () => {
    const { desk, received } = await createSlack()
    await desk.ask({ message: 'Deploy <!channel> & <https://evil.example|here>?' })
    await desk.approvals.desk().drain()
    expect(JSON.parse(received[0]?.body ?? '{}').text).toBe(
      'Deploy &lt;!channel&gt; &amp; &lt;https://evil.example|here&gt;?',
    )
  })

  it('V2 has no button that decides if the message cannot show all details', async () => {
    const { desk, received } = await createSlack()
    const actionsAt = (i: number) =>
      [...(received[i]?.body ?? '').matchAll(/"action_id":"(\w+)"/g)].map(([, action]) => action)
    await desk.ask({ details: { padding: 'x'.repeat(3_000), target: 'production' } })
    await desk.approvals.desk().drain()
    expect(actionsAt(0)).toEqual(['page'])
    await desk.ask({ message: 'x'.repeat(3_000) })
    await desk.approvals.desk().drain()
    expect(actionsAt(1)).toEqual(['page'])
    await desk.ask({ details: { padding: 'x'.repeat(2_000), target: 'production' } })
    await desk.approvals.desk().drain()
    expect(actionsAt(2)).toEqual(['approve', 'deny', 'page'])
  })

  it('V2 shows no line of a value as a fact of its own', async () => {
    const { desk, received } = await createSlack()
    await desk.ask({ details: { version: '1\nAsked by: the board', 'x\nTool': '\u202eevil' } })
    await desk.approvals.desk().drain()
    const { blocks } = JSON.parse(received[0]?.body ?? '{}') as { blocks: { text: { text: string } }[] }
    const lines = blocks[1]?.text.text.split('\n') ?? []
    expect(lines.filter((line) => line.startsWith('Asked by'))).toHaveLength(1)
    expect(lines).toContain('version: 1\\nAsked by: the board')
    expect(lines).toContain('x\\nTool: \\u202eevil')
  })

  it('V3 replies to a stale click where only its user sees it', async () => {
    const { desk, received, click } = await createSlack()
    const { url, received: replies } = await receive(() => ({}))
    const { id } = await desk.ask()
    await click(id, 'approve', 'U-ann', { replyTo: url })
    await click(id, 'deny', 'U-ann', { replyTo: url })
    await expect.poll(() => replies).toHaveLength(2)
    expect(replies.map(({ body }) => JSON.parse(body).text).sort()).toEqual([
      'Nothing was changed: this request was closed before.',
      'You have approved this.',
    ])
    expect(replies.every(({ body }) => JSON.parse(body).response_type === 'ephemeral')).toBe(true)
    expect(received.every(({ headers }) => headers.authorization === 'Bearer xoxb-1')).toBe(true)
    expect(replies.some(({ headers }) => 'authorization' in headers)).toBe(false)
  })

  it('acknowledges a click on the link to the page, which decides nothing', async () => {
    const { desk, click, state } = await createSlack()
    const { id } = await desk.ask()
    expect(await click(id, 'page', 'U-ann')).toEqual({ status: 200, text: '' })
    expect((await click(id, 'page', 'U-ann', { secret: 'guessed' })).status).toBe(401)
    expect(await state(id)).toBe('open')
  })

  it.each([
    ['with a forged signature', 'U-ann', { secret: 'guessed' }, 401],
    ['with an old signature, as a replay has', 'U-ann', { ageS: 301 }, 401],
    ['with a signature for a later time', 'U-ann', { ageS: -301 }, 401],
    ['from the caller', 'U-erin', {}, 200],
    ['from a known person outside of the group', 'U-eve', {}, 200],
    ['from an unknown user', 'U-nobody', {}, 200],
    ['from a user of another team with the same id', 'U-ann', { team: 'T2' }, 200],
  ])('L1 refuses a click %s', async (_how, user, how, status) => {
    const { desk, click, state } = await createSlack()
    const { id } = await desk.ask()
    expect((await click(id, 'approve', user, how)).status).toBe(status)
    expect(await state(id)).toBe('open')
    // The control: the same click as it should be.
    await click(id, 'approve', 'U-ann')
    expect(await state(id)).toBe('approved')
  })

  it('L1 refuses every click if nobody says who a Slack user is', async () => {
    const { desk, click, state } = await createSlack(false)
    const { id } = await desk.ask()
    await click(id, 'approve', 'ann')
    expect(await state(id)).toBe('open')
  })
})

/** A mail server: enough of SMTP for a client that sends mail. */
async function receiveMail() {
  const mails: string[] = []
  const serve = (socket: Socket): void => {
    let pending = ''
    let data: string[] | undefined
    const take = (line: string): string => {
      if (data && line === '.') {
        mails.push(data.join('\n'))
        data = undefined
        return '250 Kept'
      }
      if (data) {
        data.push(line)
        return ''
      }
      if (line !== 'DATA') return line === 'QUIT' ? '221 Bye' : '250 OK'
      data = []
      return '354 Continue'
    }
    socket.write('220 mail.example\r\n')
    socket.on('error', () => {})
    socket.on('data', (chunk) => {
      pending += chunk
      const lines = pending.split('\r\n')
      pending = lines.pop() ?? ''
      for (const line of lines) {
        const reply = take(line)
        if (reply !== '') socket.write(`${reply}\r\n`)
        if (reply.startsWith('221')) socket.end()
      }
    })
  }
  const port = await listen(createTcpServer(serve))
  return { address: `smtp://127.0.0.1:${port}?ignoreTLS=true`, mails }
}

describe('email', () => {
  it('sends a mail to every member who has an address, over SMTP', async () => {
    const { address, mails } = await receiveMail()
    const desk = createDeskBench({ notify: [email({ transport: address, from: 'approvals@example.com' })] })
    closing.push(desk.close)
    const people = ['ann', 'bob'].map((id) => ({ id, email: `${id}@example.com` }))
    desk.directory['release-managers'] = [...people, { id: 'carl' }]
    const { id } = await desk.ask({ message: 'Deploy\r\nBcc: everybody@example.com\r\n\r\nnow?' })
    await desk.approvals.desk().drain()
    expect(desk.log.filter((line) => line.includes('failed'))).toEqual([])
    expect(mails.map((mail) => /^To: (.*)$/m.exec(mail)?.[1])).toEqual(['ann@example.com', 'bob@example.com'])
    const [head = ''] = (mails[0] ?? '').split('\n\n')
    expect(head).not.toMatch(/^Bcc/m)
    expect(head).toContain('Subject: Approval: Deploy Bcc')
    expect(mails[0]?.replaceAll('=\n', '')).toContain(`/approvals/r/${id}`)
  })

  it('V2 shows no line of a message or a value as a fact of its own', async () => {
    const texts: string[] = []
    const transport = { sendMail: async ({ text }: { text: string }) => void texts.push(text) }
    const desk = createDeskBench({ notify: [email({ transport, from: 'approvals@example.com' })] })
    closing.push(desk.close)
    desk.directory['release-managers'] = [{ id: 'ann', email: 'ann@example.com' }]
    const spoof = 'x\r\nDecide here: https://evil.example'
    await desk.ask({ message: spoof, details: { note: spoof } })
    await desk.approvals.desk().drain()
    const decide = (texts[0] ?? '').split(/[\r\n]+/).filter((line) => line.startsWith('Decide here'))
    expect(decide).toEqual([`Decide here: ${ORIGIN}/approvals/r/request-1`])
  })

  it('V7 sends again to those whose mail failed, and to nobody else', async () => {
    const sent: string[] = []
    let isDown = true
    const transport = {
      async sendMail({ to }: { to: string }) {
        if (isDown && to.startsWith('bob')) throw new Error('mailbox is busy')
        sent.push(to)
      },
    }
    const desk = createDeskBench({ notify: [email({ transport, from: 'approvals@example.com' })] })
    closing.push(desk.close)
    desk.directory['release-managers'] = ['ann', 'bob'].map((id) => ({ id, email: `${id}@example.com` }))
    const { id } = await desk.ask()
    await desk.approvals.desk().drain()
    expect(await (await desk.visit(`/r/${id}`, 'ann')).text()).toContain('could not be sent by email')
    isDown = false
    desk.pass(4_000)
    await desk.approvals.desk().drain()
    expect(sent).toEqual(['ann@example.com', 'bob@example.com'])
  })
})
