// The relay's REST, as far as the console uses it. Every call names the origin
// of the relay that it asks.

import type { Part } from './connection.ts';
import type { Me, RecordingInfo, TerminalInfo } from './protocol.ts';

const timeoutMs = 10_000;
const quickMs = 4_000; // for what stands between a lost connection and the next
const longMs = 120_000; // for what may be large

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

  // unknown reports whether the request may have been carried out all the same.
  get unknown(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 504;
  }
}

// Unwanted is why a request is aborted whose answer nobody waits for any more:
// its relay has done nothing wrong.
export class Unwanted extends Error {}

export interface Grant {
  grant: string;
  lifetimeMs: number;
}

export interface Ticket {
  url: string;
  ticket: string;
}

export interface Call {
  method?: string;
  bearer?: string;
  body?: unknown;
  key?: string; // Idempotency-Key
  ms?: number; // how long it may take
  signal?: AbortSignal; // ends it, instead of ms
  headers?: Record<string, string>; // besides those of the others
  cookies?: boolean; // the page's own origin may leave some
}

// call fails with an ApiError on any answer that isn't a success.
export async function call(url: string, { method = 'GET', bearer, body, key, ms = timeoutMs, signal = AbortSignal.timeout(ms), headers: more, cookies = false }: Call): Promise<Response> {
  const headers: Record<string, string> = { ...more, ...(bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }) };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (key !== undefined) headers['Idempotency-Key'] = key;
  let answer: Response;
  try {
    answer = await fetch(url, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      cache: 'no-store',
      credentials: cookies ? 'same-origin' : 'omit', // the ticket opens the socket
      signal,
    });
  } catch {
    if (signal.reason instanceof Unwanted) throw signal.reason;
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

export const sessionAt = (origin: string, session: string) => `${origin}/sessions/${encodeURIComponent(session)}`;
const terminalsAt = (origin: string, session: string) => `${sessionAt(origin, session)}/ptys`;
export const terminalAt = (origin: string, session: string, id: string) => `${terminalsAt(origin, session)}/${encodeURIComponent(id)}`;

export async function whoAmI(origin: string, token: string): Promise<Me> {
  return (await (await call(`${origin}/auth/me`, { bearer: token })).json()) as Me;
}

export interface Login {
  oidc: boolean;
  name?: string; // of the provider
}

// loginConfig says whether there is anything to sign in at.
export async function loginConfig(origin: string): Promise<Login> {
  return (await (await call(`${origin}/auth/config`, { ms: quickMs })).json()) as Login;
}

// signOut makes the token worthless.
export async function signOut(origin: string, token: string): Promise<void> {
  await call(`${origin}/auth/logout`, { method: 'POST', bearer: token });
}

// obtainGrant measures the grant's lifetime on the server's clock, so that a
// wrong clock here doesn't make it look expired or eternal.
export async function obtainGrant(origin: string, token: string, session: string): Promise<Grant> {
  const answer = await call(`${origin}/grants`, { method: 'POST', bearer: token, body: { session_id: session }, ms: quickMs });
  const { grant, expires_at } = (await answer.json()) as { grant: string; expires_at: string };
  const now = Date.parse(answer.headers.get('Date') ?? '') || Date.now();
  return { grant, lifetimeMs: Date.parse(expires_at) - now };
}

export async function listTerminals(origin: string, grant: string, session: string): Promise<TerminalInfo[]> {
  const answer = await call(terminalsAt(origin, session), { bearer: grant });
  return ((await answer.json()) as { ptys: TerminalInfo[] | null }).ptys ?? [];
}

// createTerminal may be repeated with the same key: it makes one terminal.
export async function createTerminal(origin: string, grant: string, session: string, key: string): Promise<string> {
  const answer = await call(terminalsAt(origin, session), { method: 'POST', bearer: grant, body: {}, key });
  return ((await answer.json()) as { id: string }).id;
}

export async function closeTerminal(origin: string, grant: string, session: string, id: string, key: string): Promise<void> {
  await call(terminalAt(origin, session, id), { method: 'DELETE', bearer: grant, key });
}

export async function obtainTicket(origin: string, grant: string, session: string, id: string): Promise<Ticket> {
  const answer = await call(`${origin}/pty-session`, { method: 'POST', bearer: grant, body: { session_id: session, pty_id: id }, ms: quickMs });
  const { ws_url, ticket } = (await answer.json()) as { ws_url: string; ticket: string };
  return { url: ws_url, ticket };
}

// record begins or ends a recording.
export async function record(origin: string, grant: string, session: string, id: string, on: boolean, key: string): Promise<void> {
  await call(`${terminalAt(origin, session, id)}/recording`, { method: on ? 'POST' : 'DELETE', bearer: grant, key });
}

export interface AgentStart {
  name: string;
  command?: string; // of any program; else the known one of that name
}

// startAgent puts a coding agent in front of a terminal.
export async function startAgent(origin: string, grant: string, session: string, id: string, what: AgentStart, key: string): Promise<void> {
  await call(`${terminalAt(origin, session, id)}/agent`, { method: 'POST', bearer: grant, body: what, key });
}

export async function steerAgent(origin: string, grant: string, session: string, id: string, verb: 'pause' | 'resume' | 'stop', key: string): Promise<void> {
  await call(`${terminalAt(origin, session, id)}/agent/${verb}`, { method: 'POST', bearer: grant, key });
}

export async function listRecordings(origin: string, grant: string, session: string): Promise<RecordingInfo[]> {
  const answer = await call(`${sessionAt(origin, session)}/recordings`, { bearer: grant });
  return ((await answer.json()) as { recordings: RecordingInfo[] | null }).recordings ?? [];
}

// fetchRecording returns an asciicast v2 file.
export async function fetchRecording(origin: string, grant: string, session: string, recording: string): Promise<Blob> {
  const url = `${sessionAt(origin, session)}/recordings/${encodeURIComponent(recording)}`;
  return (await call(url, { bearer: grant, ms: longMs })).blob();
}

// fetchLog returns output as it was printed, and where it begins: later than
// asked for where the log does.
export async function fetchLog(origin: string, grant: string, session: string, id: string, { epoch, from, to }: Part): Promise<{ from: number; bytes: Uint8Array }> {
  const query = new URLSearchParams({ from: `${epoch}:${from}`, to: String(to) });
  const answer = await call(`${terminalAt(origin, session, id)}/log?${query}`, { bearer: grant, ms: longMs });
  const began = Number(answer.headers.get('Fairlead-Position')?.split(':')[1] ?? from);
  return { from: Number.isSafeInteger(began) ? began : from, bytes: new Uint8Array(await answer.arrayBuffer()) };
}
