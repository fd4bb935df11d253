/**
 * The caller's own tasks, page by page, newest first. Where a page ends is told sealed, for this caller alone: a cursor that
 * was changed, or that somebody else was given, is refused.
 */

import { RondoError } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import type { Principal } from '../protocol/call.ts'
import type { OlderReply } from '../protocol/older-reply.ts'
import type { TaskListCall } from '../protocol/session-call.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import type { TaskOwner, TaskPage } from '../store/task-engine.ts'
import type { FlowHost, TaskHost } from './flow-host.ts'
import { ownerOf } from './task-host.ts'
import { readableState } from './task-view.ts'

const MAX_CURSOR = 2_048

export async function listTasks(
  host: FlowHost,
  tasks: TaskHost,
  { cursor }: TaskListCall,
  principal: Principal | undefined,
  limit: number,
): Promise<OlderReply> {
  await host.keys.ready()
  const owner = ownerOf(host, principal)
  const after = cursor === undefined ? undefined : openCursor(host, owner, cursor)
  const views = await tasks.engine.list(owner, { after, limit })
  const last = views.at(-1)
  return {
    kind: 'tasks',
    tasks: views.flatMap((view) => readableState(host, tasks, owner, view) ?? []),
    nextCursor: last && views.length >= limit ? sealCursor(host, owner, last) : undefined,
  }
}

function placeOf({ tenant, principal }: TaskOwner): string {
  return JSON.stringify(['task list', principal, tenant])
}

function sealCursor(
  { keys }: FlowHost,
  owner: TaskOwner,
  { id, createdAt }: NonNullable<TaskPage['after']>,
): string {
  return sealEnvelope(keys.ring, placeOf(owner), JSON.stringify({ id, createdAt })).token
}

function openCursor({ keys }: FlowHost, owner: TaskOwner, cursor: string): TaskPage['after'] {
  const opened = openEnvelope(keys.ring, placeOf(owner), cursor, MAX_CURSOR)
  const place: unknown = opened.kind === 'refused' ? undefined : JSON.parse(opened.plaintext.toString('utf8'))
  if (!isRecord(place)) throw new RondoError('PEER_PARAMS', 'This cursor is not from this list')
  return { id: String(place.id), createdAt: Number(place.createdAt) }
}
