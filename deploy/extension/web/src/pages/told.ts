// What those are told who look: pages of ours by their ports, and the popup.

import type { Share } from './shares.ts';
import type { Allowed } from './sites.ts';
import { siteOf } from './sites.ts';
import { title } from '../tabs/url.ts';

export interface SharedTab {
  tabId: number;
  title: string;
  url: string; // origin and path
  sessionId: string;
  expiresAt: number;
  attached: boolean;
}

// tell describes a shared tab. Where it is at a page that no command touches,
// nothing is said of that.
export function tell({ tabId, sessionId, expiresAt }: Share, tab: { url?: string; title?: string } | undefined, attached: boolean, allowed: Allowed): SharedTab {
  const url = allowed(tab?.url) ? siteOf(tab?.url) : undefined;
  const address = url === undefined ? '' : `${url.origin}${url.pathname}`.slice(0, 2_048);
  return { tabId, title: url === undefined ? '' : title(tab?.title), url: address, sessionId, expiresAt, attached };
}

// What the popup shows.
export interface State {
  tabs: 'shared' | 'all';
  browserId: string;
  stopped: boolean;
  sessions: { id: string; name: string; origin: string }[];
  shares: (SharedTab & { name: string; last?: { method: string; at: number; failed: boolean } })[];
  attached: number[];
  refused: number; // messages over the rate
}

// What the popup asks for.
export type Wish = { do: 'share'; tabId: number; sessionId: string; minutes: number } | { do: 'unshare'; tabId: number; sessionId: string } | { do: 'stop' } | { do: 'resume' };

// later calls once for many calls in a row.
export function later(what: () => void, ms: number): () => void {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    setTimeout(() => {
      waits = false;
      what();
    }, ms);
  };
}
