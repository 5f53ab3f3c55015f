// The relay's REST, as far as the console uses it.

import type { Me, TerminalInfo } from './protocol.ts';

const timeoutMs = 10_000;

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
}

export interface Grant {
  grant: string;
  lifetimeMs: number;
}

export interface Ticket {
  url: string;
  ticket: string;
}

interface Call {
  method?: string;
  bearer: string;
  body?: unknown;
  key?: string; // Idempotency-Key
}

async function call(path: string, { method = 'GET', bearer, body, key }: Call): Promise<Response> {
  const headers: Record<string, string> = { Authorization: `Bearer ${bearer}` };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (key !== undefined) headers['Idempotency-Key'] = key;
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      cache: 'no-store',
      signal: AbortSignal.timeout(timeoutMs),
    });
  } catch {
    throw new ApiError(0, 'The relay does not answer.');
  }
  if (!answer.ok) throw new ApiError(answer.status, await reason(answer));
  return answer;
}

// reason reads {"error":{"message"}}, whatever else the answer may be.
async function reason(answer: Response): Promise<string> {
  try {
    const body = (await answer.json()) as { error?: { message?: unknown } };
    if (typeof body.error?.message === 'string') return body.error.message;
  } catch {
    // A proxy's error page, perhaps.
  }
  return `The relay answered ${answer.status}.`;
}

const terminals = (session: string) => `/sessions/${encodeURIComponent(session)}/ptys`;

export async function whoAmI(token: string): Promise<Me> {
  return (await (await call('/auth/me', { bearer: token })).json()) as Me;
}

// obtainGrant measures the grant's lifetime on the server's clock, so that a
// wrong clock here doesn't make it look expired or eternal.
export async function obtainGrant(token: string, session: string): Promise<Grant> {
  const answer = await call('/grants', { method: 'POST', bearer: token, body: { session_id: session } });
  const { grant, expires_at } = (await answer.json()) as { grant: string; expires_at: string };
  const now = Date.parse(answer.headers.get('Date') ?? '') || Date.now();
  return { grant, lifetimeMs: Date.parse(expires_at) - now };
}

export async function listTerminals(grant: string, session: string): Promise<TerminalInfo[]> {
  const answer = await call(terminals(session), { bearer: grant });
  return ((await answer.json()) as { ptys: TerminalInfo[] | null }).ptys ?? [];
}

// createTerminal may be repeated with the same key: it makes one terminal.
export async function createTerminal(grant: string, session: string, key: string): Promise<string> {
  const answer = await call(terminals(session), { method: 'POST', bearer: grant, body: {}, key });
  return ((await answer.json()) as { id: string }).id;
}

export async function closeTerminal(grant: string, session: string, id: string, key: string): Promise<void> {
  await call(`${terminals(session)}/${encodeURIComponent(id)}`, { method: 'DELETE', bearer: grant, key });
}

export async function obtainTicket(grant: string, session: string, id: string): Promise<Ticket> {
  const answer = await call('/pty-session', { method: 'POST', bearer: grant, body: { session_id: session, pty_id: id } });
  const { ws_url, ticket } = (await answer.json()) as { ws_url: string; ticket: string };
  return { url: ws_url, ticket };
}
