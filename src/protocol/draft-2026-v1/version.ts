/** The label under which the accepted proposal for multi round-trip requests travelled before it was published. */
export const DRAFT_VERSION = 'DRAFT-2026-v1'
