// What the popup says. Pure.

import type { State } from './told.ts';

type Tone = 'quiet' | 'good' | 'busy';

// summary is the one line about all of it.
export function summary({ stopped, attached, shares, tabs }: Pick<State, 'stopped' | 'attached' | 'shares' | 'tabs'>): { text: string; tone: Tone } {
  if (stopped) return { text: 'Stopped', tone: 'quiet' };
  if (attached.length > 0) return { text: attached.length === 1 ? 'Driving one tab' : `Driving ${attached.length} tabs`, tone: 'busy' };
  if (tabs === 'all') return { text: 'All tabs', tone: 'good' };
  const count = new Set(shares.map((share) => share.tabId)).size;
  return count === 0 ? { text: 'Nothing is shared', tone: 'quiet' } : { text: count === 1 ? 'One tab is shared' : `${count} tabs are shared`, tone: 'good' };
}

// minutesLeft is how long a share lasts.
export function minutesLeft(expiresAt: number, now: number): string {
  const minutes = Math.ceil((expiresAt - now) / 60_000);
  return minutes <= 1 ? 'one minute left' : `${minutes} minutes left`;
}

// what is what ran last in a shared tab.
export function what({ last, attached }: Pick<State['shares'][number], 'last' | 'attached'>, now: number): string {
  if (attached) return 'Something runs here now';
  if (last === undefined) return 'Nothing has run here yet';
  const seconds = Math.max(0, Math.round((now - last.at) / 1000));
  const ago = seconds < 60 ? 'just now' : seconds < 120 ? 'a minute ago' : `${Math.floor(seconds / 60)} minutes ago`;
  return `${last.method}${last.failed ? ', which failed' : ''}, ${ago}`;
}
