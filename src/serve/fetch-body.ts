/** The body of a web request as text, up to a limit that holds while it streams. */

export type FetchBody =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'too-large' }
  | { readonly kind: 'broken'; readonly detail: string }

export async function readBody(request: Request, limit: number): Promise<FetchBody> {
  if (Number(request.headers.get('content-length') ?? 0) > limit) {
    await request.body?.cancel()
    return { kind: 'too-large' }
  }
  if (request.body === null) return { kind: 'text', text: '' }
  const reader = request.body.getReader()
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  let size = 0
  let text = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return { kind: 'text', text: text + decoder.decode() }
      size += value.byteLength
      if (size > limit) {
        await reader.cancel()
        return { kind: 'too-large' }
      }
      text += decoder.decode(value, { stream: true })
    }
  } catch (error) {
    const detail = error instanceof TypeError ? 'The body is not UTF-8 or broke off' : 'The body broke off'
    return { kind: 'broken', detail }
  }
}
