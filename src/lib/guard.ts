/** Runs a function of somebody else: what it throws, or what the promise it returns rejects with, goes to `report`. */
export async function guard(run: () => unknown, report: (error: unknown) => void = () => {}): Promise<void> {
  try {
    await run()
  } catch (error) {
    report(error)
  }
}
