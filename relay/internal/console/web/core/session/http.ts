// One REST request to a relay, and what its failure means.

import { webPlatform, type Platform } from '../platform.ts';

const timeoutMs = 10_000;
export const quickMs = 4_000; // for what stands between a lost connection and the next
export const longMs = 120_000; // for what may be large

// An ApiError is an answer that isn't a success. Status 0 means that there was
// no answer.
export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
    this.name = 'ApiError';
  }

  // passing reports whether the same request may succeed later.
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  // unknown reports whether the request may still have been carried out.
  get unknown(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 504;
  }
}

// Unwanted is why a request is aborted whose answer nobody waits for any more:
// its relay has done nothing wrong.
export class Unwanted extends Error {}

export interface Call {
  method?: string;
  bearer?: string;
  body?: unknown; // as JSON
  form?: FormData; // instead of body
  key?: string; // Idempotency-Key
  ms?: number; // how long it may take
  signal?: AbortSignal; // ends it, instead of ms
  headers?: Record<string, string>; // besides those of the others
  cookies?: boolean; // the page's own origin may leave some
}

// call fails with an ApiError on any answer that isn't a success.
export async function call(url: string, { method = 'GET', bearer, body, form, key, ms = timeoutMs, signal = AbortSignal.timeout(ms), headers: more, cookies = false }: Call, platform: Platform = webPlatform): Promise<Response> {
  const headers: Record<string, string> = { ...more, ...(bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }) };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (key !== undefined) headers['Idempotency-Key'] = key;
  let answer: Response;
  try {
    answer = await platform.fetch(url, {
      method,
      headers,
      ...(form !== undefined ? { body: form } : body === undefined ? {} : { body: JSON.stringify(body) }),
      cache: 'no-store',
      credentials: cookies ? 'same-origin' : 'omit', // the ticket opens the socket
      signal,
    });
  } catch {
    if (signal.reason instanceof Unwanted) throw signal.reason;
    throw new ApiError(0, 'The relay does not answer.');
  }
  if (!answer.ok) throw new ApiError(answer.status, reasonOf(answer.status, await answer.text().catch(() => '')));
  return answer;
}

// reasonOf reads {"error":{"message"}} or {"error":"…"}, whatever else the answer may be.
export function reasonOf(status: number, text: string): string {
  try {
    const error = (JSON.parse(text) as { error?: { message?: unknown } } | null)?.error;
    if (typeof error === 'string') return error;
    if (typeof error?.message === 'string') return error.message;
  } catch {
    // A proxy's error page, perhaps.
  }
  return `The relay answered ${status}.`;
}
