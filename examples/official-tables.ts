/** A restaurant that honours idempotency keys: one key, one table. */
export function createTables() {
  const booked = new Map<string, { id: string; date: string; people: number }>()
  return {
    booked,
    async book(date: string, people: number, { idempotencyKey }: { idempotencyKey: string }) {
      const before = booked.get(idempotencyKey)
      const table = before ?? { id: `T${booked.size + 1}`, date, people }
      booked.set(idempotencyKey, table)
      return table
    },
  }
}
