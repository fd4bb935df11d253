import { describe, expect, it } from 'vitest'
import { sealEnvelope } from '../../seal/envelope.ts'
import { createHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { openPiece, ownerOf, type Piece, type PieceOf, sealPiece } from './journal.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const hostFor = (audience: string): FlowHost =>
  createHost({ audience, keys, log: 'off', store: createMemoryStore() })
const host = hostFor('tracker')
await host.keys.ready()
const alice = ownerOf(host, { subject: 'alice' })
const of: PieceOf = { id: 'task-1', owner: alice }
const open = (piece: Piece, sealed: string, changes: Partial<PieceOf> = {}, at: FlowHost = host) =>
  openPiece(at, at.tasks as TaskHost, { ...of, ...changes }, piece, sealed)

const pieces: readonly Piece[] = ['head', 'record', 'message', 'result', 'error', 'input a', 'answer a']

describe('a piece of a task', () => {
  it.each(pieces)('opens in its own place: %s', (piece) => {
    expect(open(piece, sealPiece(host, of, piece, { value: 1 }))).toEqual({ value: 1 })
  })

  it.each(pieces)('opens for no other task and no other service: %s', async (piece) => {
    const sealed = sealPiece(host, of, piece, 1)
    const other = hostFor('other')
    await other.keys.ready()
    expect(() => open(piece, sealed, { id: 'task-2' })).toThrow('does not open')
    expect(() => open(piece, sealed, {}, other)).toThrow('does not open')
  })

  it.each(pieces)('opens in no other place: %s', (piece) => {
    const sealed = sealPiece(host, of, piece, 1)
    const others: readonly Piece[] = [...pieces, 'input b', 'answer b']
    for (const other of others.filter((one) => one !== piece))
      expect(() => open(other, sealed), other).toThrow('does not open')
  })

  it.each(pieces.slice(2))('opens for no other owner: %s', (piece) => {
    const sealed = sealPiece(host, of, piece, 1)
    for (const principal of [{ subject: 'bob' }, undefined])
      expect(() => open(piece, sealed, { owner: ownerOf(host, principal) })).toThrow('does not open')
  })

  it.each(pieces.slice(2))('opens only if it was sealed for its owner and its key: %s', (piece) => {
    const place = JSON.stringify(['task', 'task-1', piece.split(' ')[0], 'tracker'])
    const { token } = sealEnvelope(host.keys.ring, place, '1')
    expect(() => open(piece, token)).toThrow('does not open')
  })
})

it('an owner of tasks is a caller of one service', () => {
  expect(alice).toEqual(ownerOf(host, { subject: 'alice' }))
  expect(alice.tenant).toBe('tracker')
  expect(alice).not.toEqual(ownerOf(hostFor('other'), { subject: 'alice' }))
  expect(alice).not.toEqual(ownerOf(host, { subject: 'bob' }))
  expect(alice).not.toEqual(ownerOf(host, undefined))
})
