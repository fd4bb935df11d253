/**
 * Vercel, as `api/mcp.ts` of a project, or as `app/mcp/route.ts` in Next.js: rounds only.
 * Everybody who can reach it may call, until you pass `authenticate`.
 */

import { createTracker } from './server.ts'

// RONDO_KEYS comes from the environment. Below the function's maxDuration.
const server = createTracker({
  allowedHosts: process.env.ALLOWED_HOSTS?.split(','),
  maxRoundMs: 20_000,
})

export const POST = server.fetch
