/**
 * The world outside replay, on Node and on runtimes that have its crypto: clock, ids, digests, idle moments.
 */

import { createHmac } from 'node:crypto'
import { digest } from '../lib/digest.ts'
import { drawBytes } from '../lib/draw-bytes.ts'
import { idle } from '../lib/idle.ts'
import type { FlowPlatform } from './flow-host.ts'

export interface PlatformOptions {
  now?: () => number
  randomId?: () => string
}

export function createPlatform({ now = Date.now, randomId = drawId }: PlatformOptions = {}): FlowPlatform {
  return {
    now,
    randomId,
    idle,
    digest,
    derive: (seed, label) => createHmac('sha256', seed).update(label).digest(),
  }
}

function drawId(): string {
  return drawBytes(16).toString('base64url')
}
