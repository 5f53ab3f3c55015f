// What is shown of shared tabs and of what ran in them, in words.

export interface Shared {
  user: string;
  name: string;
  browserId: string;
  tabId: number;
  title: string;
  url: string;
  expiresAt: string;
  last?: { method: string; status: string; at: string };
}

export interface Ran {
  commandId: string;
  by: string; // 'agent' or 'person'
  browserId?: string;
  tabId: number;
  method: string;
  status: string;
  issuedAt: string;
  ttlMs: number;
  finishedAt?: string;
  answer?: string;
  error?: { message: string; name?: string };
}

export interface State {
  tone: 'ok' | 'bad' | 'warn' | 'idle';
  text: string;
}

const clock = (at: string): string => new Date(at).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });

// until says how long something lasts, in whole minutes.
export function until(expiresAt: string, now: number): string {
  const minutes = Math.ceil((Date.parse(expiresAt) - now) / 60_000);
  return minutes <= 0 ? 'ends now' : minutes === 1 ? 'for less than a minute' : `for ${minutes} minutes`;
}

// stateOf says what became of a command.
export function stateOf({ status, issuedAt, ttlMs, error }: Ran, now: number): State {
  switch (status) {
    case 'ok':
      return { tone: 'ok', text: 'done' };
    case 'error':
      return { tone: 'bad', text: error?.name === undefined ? 'failed' : `failed (${error.name})` };
    case 'undelivered':
      return { tone: 'bad', text: 'not sent' };
    case 'signed':
      if (now < Date.parse(issuedAt) + ttlMs) return { tone: 'idle', text: 'under way' };
      return { tone: 'warn', text: 'no answer' };
    default:
      return { tone: 'warn', text: 'no answer' };
  }
}

// timesOf says when a command was sent, and how long its answer took.
export function timesOf({ issuedAt, finishedAt }: Ran): string {
  if (finishedAt === undefined) return clock(issuedAt);
  const ms = Date.parse(finishedAt) - Date.parse(issuedAt);
  return `${clock(issuedAt)} · ${ms < 1_000 ? `${Math.max(ms, 0)} ms` : `${(ms / 1_000).toFixed(1)} s`}`;
}

// tabOf names the tab of a command: by its title while it is shared.
export function tabOf({ browserId, tabId }: Ran, shared: readonly Shared[]): string {
  const tab = shared.find((s) => s.tabId === tabId && s.browserId === browserId);
  return tab === undefined || tab.title === '' ? `tab ${tabId}` : tab.title;
}
