import { isThenable } from './json.ts'

/** Guards a listener of the operator: what it throws or rejects with goes to `onFailure`, and everything continues. */
export function quietly<T>(
  listener: ((value: T) => unknown) | undefined,
  onFailure: (error: unknown) => void = () => {},
): (value: T) => void {
  return (value) => {
    try {
      const outcome = listener?.(value)
      if (isThenable(outcome)) Promise.resolve(outcome).catch(onFailure)
    } catch (error) {
      onFailure(error)
    }
  }
}
