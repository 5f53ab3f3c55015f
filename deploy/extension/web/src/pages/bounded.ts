// Answers that are no longer than they may be.

// boundedText is a body's text, of UTF-8 alone. It throws for more than so many bytes.
export async function boundedText({ body }: Response, mostBytes: number): Promise<string> {
  if (body === null) return '';
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const reader = body.getReader();
  let text = '';
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    bytes += value.length;
    if (bytes > mostBytes) {
      await reader.cancel();
      throw new Error('too large');
    }
    text += decoder.decode(value, { stream: true });
  }
}
