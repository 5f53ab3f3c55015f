// What the popup shows, and what it asks for. No secret is in either.

import type { Push } from './answer.ts';
import type { Bound, LeftOut } from './cookie.ts';

// A Last push is what was sent, and what came of it.
export interface Last extends Push {
  at: number; // Unix ms
  cookies: number;
  leftOut: LeftOut;
  bound: Bound;
}

export interface State {
  signedIn: boolean;
  session: string; // that the link is about, '' for none
  sessions: { id: string; name: string }[]; // that may be paired
  pairing: { session: string; fingerprint: string; warning: string; pairedAt: number } | null;
  sites: { site: string; cookies: number }[];
  last: Last | null;
  busy: '' | 'pairing' | 'sending' | 'stopping';
  problem: string;
  failed: boolean; // the last push; a problem may be with something else
  next: number; // when what failed is tried again; 0: not by itself
  mayForget: boolean; // the sandbox hasn't ended it, and it can be forgotten here alone
  ours: string[]; // origins that are never sent
}

export type Wish =
  | { do: 'sign-in'; link: string }
  | { do: 'sign-out' }
  | { do: 'pair'; session: string }
  | { do: 'add'; site: string } // before Chrome asks the person, which may end the popup
  | { do: 'added'; site: string; granted: boolean }
  | { do: 'remove'; site: string }
  | { do: 'send' }
  | { do: 'stop' }
  | { do: 'forget' };
